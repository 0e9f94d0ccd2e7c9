"""A captured trajectory that has of everything what exports must tell apart, and what its client saw of it.

    first ─ second (adds nothing) ─ adapted (by an adapter) ─ longer (by it, too)
          │                                                 └ back (by the base again)
          └ stopped (by a string) ─ last

The base changes in the middle of `first` and of `adapted`. All turns are completions of ids, so that the client knows every one.
"""

from control import LONG, Trained, prompt

FLAGS = ["--capture", "memory", "--enable-lora"]
SESSION = "tree"
BASE, ADAPTER = "smollm2", "policy"


class Turn:
    """An answer, and those that it continues."""

    def __init__(self, rollout, model, before=None):
        self.prompt, self.ids, self.log_probs = list(rollout.prompt), rollout.ids, rollout.log_probs
        self.spans, self.finish_reason, self.model = rollout.versions, rollout.finish_reason, model
        self.chain = [*(before.chain if before else []), self]

    @property
    def whole(self):
        return [*self.prompt, *self.ids]

    def line(self, learnt, repeated):
        """What an export has to say of the sequence that ends here, position by position, if these turns are learnt from, and
        these in an earlier sequence too."""
        said = {"token_ids": self.whole, "loss_mask": [0] * len(self.whole), "logprobs": [None] * len(self.whole), "turns": []}
        for turn in self.chain:
            assert self.whole[: len(turn.whole)] == turn.whole
            for number, (token, log_prob) in enumerate(zip(turn.ids, turn.log_probs, strict=True)):
                at = len(turn.prompt) + number
                assert said["token_ids"][at] == token
                said["loss_mask"][at] = int(turn in learnt)
                said["logprobs"][at] = log_prob
            said["turns"].append((len(turn.prompt), len(turn.whole), turn in repeated, turn.spans))
        return said


class Branched:
    """A server that has captured the trajectory; `turns` are what the client saw, in the order in which they were sampled."""

    def __init__(self, root):
        self.trained = Trained(root, *FLAGS)
        self.server = self.trained.server
        checkpoints = self.trained.checkpoints
        adapter = checkpoints.write_adapter(ADAPTER, 5)
        self.server.exchange("/v1/load_lora_adapter", {"lora_name": ADAPTER, "lora_path": str(adapter)})
        first = self.straddling(prompt(1), BASE, "one")
        second = self.turn([], BASE, first)
        adapted = self.straddling([*second.whole, *prompt(2)], ADAPTER, "two", second)
        longer = self.turn(prompt(3), ADAPTER, adapted)
        back = self.turn(prompt(4), BASE, adapted)
        stopped = self.turn(prompt(5), BASE, first, stop=list("aeio"), max_tokens=LONG)
        assert stopped.finish_reason == "stop" and len(stopped.ids) > 1
        last = self.turn(prompt(6), BASE, stopped)
        self.turns = [first, second, adapted, longer, back, stopped, last]
        self.leaves = [longer, back, last]

    def turn(self, added, model, before, **asked):
        asked = {"model": model, "session_id": SESSION, "seed": 1, **asked}
        return self.seen(self.trained.complete([*before.whole, *added], **asked), model, before)

    def straddling(self, ids, model, name, before=None):
        """An answer in the middle of which the base becomes another one."""
        [running] = self.trained.under_way(ids, model=model, session_id=SESSION, max_tokens=9, seed=2)
        directory = self.trained.checkpoints.write(name, len(self.trained.names))
        self.server.post("/start_weight_update")
        self.server.post("/update_weights", update_info={"path": str(directory)})
        self.server.post("/finish_weight_update", weight_version=name)
        self.trained.names[name] = name
        return self.seen(running.rollout(), model, before)

    def seen(self, rollout, model, before):
        """Every token has the log-prob that numpy gives it by the weights which the answer names."""
        spans = rollout.versions
        if model == ADAPTER:
            for span in spans:
                base = span["base_version"]
                self.trained.names[f"{span['version']} on {base}"] = self.adapter_on(self.trained.names[base])
            named = [{**span, "version": f"{span['version']} on {span['base_version']}"} for span in spans]
            rollout.versions = named
        self.trained.check(rollout)
        rollout.versions = spans
        return Turn(rollout, model, before)

    def adapter_on(self, base):
        """The checkpoint that is the adapter merged into this one."""
        checkpoints, name = self.trained.checkpoints, f"{ADAPTER} on {base}"
        before, merged, under = (checkpoints.tensors(of) for of in ("base", ADAPTER, base))
        checkpoints.keep(name, {key: under[key] + (merged[key] - before[key]) for key in under})
        return name

    def lines(self, unit):
        """What an export has to say, row by row."""
        if unit == "turn":
            return [turn.line([turn], turn.chain[:-1]) for turn in self.turns]
        before, lines = [], []
        for leaf in self.leaves:
            learnt = [turn for turn in leaf.chain if turn.model == leaf.model]
            lines.append(leaf.line(learnt, [turn for turn in learnt if turn in before]))
            before += learnt
        return lines
