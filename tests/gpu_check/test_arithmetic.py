"""What scripts/gpu-check computes without a server: budget, shapes, roofline, differences, tables.

    python3 -m unittest discover tests/gpu_check
"""

import asyncio
import json
import struct
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
root = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(root / "tests"), str(root / "benches")]

from gpu import compare, roofline, shapes, tables, updates, verdict, writing  # noqa: E402
from gpu.budget import Budget  # noqa: E402
from gpu.checks import Check  # noqa: E402
from gpu.session import Binary  # noqa: E402
from serve.fleet import Fleet, steady  # noqa: E402
from serve.load import Answer  # noqa: E402


class Clock:
    """Says what it is told to say."""

    now = 0.0

    def __call__(self):
        return self.now


class BudgetOfTime(unittest.TestCase):
    def test_what_a_part_does_not_take_goes_to_those_after_it(self):
        clock = Clock()
        budget = Budget(100, {"a": 1, "b": 1, "c": 2}, clock)
        self.assertEqual(budget.take("a"), 25)
        clock.now = 1.0
        self.assertEqual(budget.take("b"), 33)
        self.assertEqual(budget.take("c"), 99)

    def test_all_parts_that_take_all_they_may_end_in_time(self):
        clock = Clock()
        budget = Budget(60, {name: weight for weight, name in enumerate("abcdef", 1)}, clock)
        for name in "abcdef":
            clock.now += budget.take(name)
        self.assertAlmostEqual(clock.now, 60)

    def test_nothing_is_left_after_the_end(self):
        clock = Clock()
        budget = Budget(5, {"a": 1, "b": 1}, clock)
        clock.now = 9.0
        self.assertEqual((budget.left(), budget.take("b")), (0, 0))


class ShapesOfModels(unittest.TestCase):
    def test_published_models_have_their_numbers(self):
        self.assertEqual(shapes.QWEN3_06B.parameters, 596_049_920)
        self.assertEqual(shapes.LLAMA_8B.parameters, 8_030_261_248)
        self.assertEqual(shapes.LLAMA_8B.kv_bytes, 131_072)
        self.assertEqual(shapes.QWEN3_06B.kv_bytes, 114_688)

    def test_embeddings_are_read_once_where_they_are_the_head_and_only_in_rows_where_not(self):
        tied, untied = shapes.QWEN3_06B, shapes.LLAMA_8B
        self.assertEqual(tied.read_parameters, tied.parameters)
        self.assertEqual(untied.read_parameters, untied.parameters - untied.vocab * untied.hidden)

    def test_a_mixture_reads_the_experts_that_its_rows_choose_and_computes_theirs(self):
        mixture = shapes.QWEN3_30B_A3B
        of_expert = 3 * 8 * 2048 * 768
        self.assertEqual(mixture.parameters - mixture.layer_parameters, 120 * of_expert + 2 * 151936 * 2048)
        self.assertEqual(mixture.read_by(1), mixture.read_parameters)
        self.assertLess(mixture.read_by(2), mixture.read_parameters + 8 * of_expert)
        self.assertAlmostEqual(mixture.read_by(10_000) / (mixture.read_parameters + 120 * of_expert), 1)

    def test_every_id_has_a_text_and_no_two_the_same(self):
        model = shapes.tokenizer(700)["model"]
        self.assertEqual(sorted(model["vocab"].values()), list(range(700)))
        self.assertEqual(min(shapes.text_ids(700)), 259)


class FilesOfModels(unittest.TestCase):
    def test_a_shard_is_a_safetensors_file_of_bf16(self):
        tensors = {"model.norm.weight": (4,), "lm_head.weight": (3, 4)}
        _, draw = writing.with_nothing(seed=1)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "model.safetensors")
            writing.write_shard(path, tensors, draw)
            data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        self.assertEqual(header["lm_head.weight"], {"dtype": "BF16", "shape": [3, 4], "data_offsets": [8, 32]})
        self.assertEqual(len(data), 8 + length + 32)
        norm = struct.unpack("<4H", data[8 + length : 16 + length])
        numbers = [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in norm]
        self.assertTrue(all(0.3 < number < 1.7 for number in numbers), numbers)

    def test_no_shard_is_longer_than_it_may_be_and_no_tensor_is_lost(self):
        shards = writing.split(shapes.LLAMA_8B.tensors())
        self.assertEqual(sum(map(len, shards)), len(shapes.LLAMA_8B.tensors()))
        for shard in shards:
            self.assertLessEqual(sum(2 * a * (b[0] if b else 1) for a, *b in shard.values()), writing.SHARD)


class Rooflines(unittest.TestCase):
    machine = roofline.Roofline(bytes_per_s=4e12, flops=800e12)

    def test_one_stream_hangs_on_memory_and_costs_the_weights(self):
        rate, hangs_on = roofline.decode_rate(self.machine, shapes.LLAMA_8B, 1, 0)
        self.assertEqual(hangs_on, "memory")
        self.assertAlmostEqual(rate, 4e12 / (2 * shapes.LLAMA_8B.read_parameters))

    def test_a_long_prompt_hangs_on_arithmetic(self):
        rate, hangs_on = roofline.prompt_rate(self.machine, shapes.LLAMA_8B, 4096)
        self.assertEqual(hangs_on, "arithmetic")
        # Two operations a number, and attention, which is a tenth of that here at most.
        most = 800e12 / (2 * shapes.LLAMA_8B.layer_parameters)
        self.assertTrue(0.9 * most < rate < most, rate)

    def test_keys_and_values_of_all_streams_are_read_each_step(self):
        size, operations = roofline.decode_step(shapes.LLAMA_8B, 256, 1000)
        self.assertEqual(size, 2 * shapes.LLAMA_8B.read_parameters + 256 * 1000 * 131_072)
        attention = 256 * 4 * 32 * 32 * 128 * 1000
        self.assertEqual(operations, 512 * shapes.LLAMA_8B.read_parameters + attention)

    def test_a_whole_run_takes_no_less_than_its_steps(self):
        least = roofline.whole_run(self.machine, shapes.LLAMA_8B, 8, 512, 512)
        rate, _ = roofline.decode_rate(self.machine, shapes.LLAMA_8B, 8, 768)
        self.assertGreater(least, 8 * 511 / rate)

    def test_what_was_not_measured_bounds_nothing(self):
        half = roofline.Roofline(bytes_per_s=4e12, flops=None)
        self.assertIsNone(roofline.decode_rate(half, shapes.LLAMA_8B, 1, 0))
        self.assertIsNone(roofline.whole_run(half, shapes.LLAMA_8B, 1, 8, 8))


def choice(ids, log_probs, tops):
    """A greedy choice as /v1/completions has it."""
    return {"token_ids": ids, "logprobs": {"token_logprobs": log_probs, "top_logprobs": tops}}


class Differences(unittest.TestCase):
    def test_answers_part_where_both_leads_are_small_and_are_not_compared_after_that(self):
        one = choice([1, 2, 3], [-1.0, -2.0, -3.0], [{"1": -1.0, "9": -4.0}, {"2": -2.0, "7": -2.01}, {}])
        other = choice([1, 7, 8], [-1.5, -2.0, -9.0], [{"1": -1.5, "9": -4.0}, {"7": -2.0, "2": -2.03}, {}])
        found = compare.between(one, other)
        self.assertEqual((found.parted, found.compared, found.most), (1, 1, 0.5))

    def test_parting_at_a_large_lead_is_a_large_difference(self):
        one = choice([1], [-0.1], [{"1": -0.1, "2": -5.1}])
        other = choice([2], [-0.2], [{"2": -0.2, "1": -5.2}])
        self.assertAlmostEqual(compare.between(one, other).most, 5.0)

    def test_a_number_that_is_none_is_far_from_all(self):
        found = compare.Difference()
        found.add(float("nan"), -1.0)
        found.add(-1.0, -1.0)
        self.assertEqual(found.most, float("inf"))

    def test_a_difference_is_judged_by_the_bound(self):
        bound = compare.Bound.of({"max": 0.1, "mean": 0.01})
        near, far = Check("near", None, "", 0.2), Check("far", True, "", 0.21)
        bad = Check("bad", False, "", 0.0)
        for check in (near, far, bad):
            check.judge(bound)
        self.assertEqual((near.ok, far.ok, bad.ok), (True, False, False))


def told(log_probs, best=None, mistaken=None):
    """What the job `reference` says of one case."""
    case = {"log_probs": log_probs, "best": best or log_probs, "mistaken": mistaken or [one - 3 for one in log_probs]}
    errors = [abs(one - other) for one, other in zip(case["mistaken"], log_probs, strict=True)]
    mistaken = {"max": max(errors), "mean": sum(errors) / len(errors)}
    return {"how": "test", "cases": [case], "rounded": {"max": 0.1, "mean": 0.02}, "mistaken": mistaken}


class Verdicts(unittest.TestCase):
    prompt = (5, 6)
    entries = (None, {"6": {"logprob": -4.0}})

    def answer(self, log_prob):
        """To a prompt of two tokens, with one token."""
        return [(list(self.prompt), choice([7], [log_prob], [{}]) | {"prompt_logprobs": list(self.entries)})]

    def oks(self, answers, said, wrong=False):
        """What the checks say."""
        return [check.ok for check in verdict.by_reference(answers, said, wrong)[0]]

    def test_near_log_probs_pass(self):
        self.assertEqual(self.oks(self.answer(-1.0), told([-4.0, -1.02])), [True, True])

    def test_a_log_prob_that_is_far_off_fails(self):
        self.assertEqual(self.oks(self.answer(-1.0), told([-4.0, -1.4])), [False, True])

    def test_log_probs_that_are_all_off_a_little_fail(self):
        self.assertEqual(self.oks(self.answer(-1.0), told([-4.1, -1.1])), [False, True])

    def test_a_greedy_token_far_behind_the_references_own_fails(self):
        self.assertEqual(self.oks(self.answer(-1.0), told([-4.0, -1.0], best=[-1.0, -0.2])), [False, True])

    def test_a_mistake_that_would_not_show_fails(self):
        self.assertEqual(self.oks(self.answer(-1.0), told([-4.0, -1.0], mistaken=[-4.1, -1.1])), [True, False])

    def test_a_wrong_reference_fails(self):
        self.assertEqual(self.oks(self.answer(-1.0), told([-4.0, -1.0]), wrong=True), [False, True])

    def test_without_a_reference_nothing_is_called_passed(self):
        [check], _ = verdict.without_reference("there is none")
        self.assertIsNone(check.ok)


def answer(sent, first, gap, tokens):
    """That came one token after another."""
    last = first + gap * (tokens - 1)
    return Answer(sent, first, last, tokens, 10, [gap] * (tokens - 1), tokens, None)


class SteadyTime(unittest.TestCase):
    def test_it_begins_with_the_last_first_token_and_ends_with_the_first_last(self):
        seconds, tokens, context = steady([answer(0, 1.0, 1.0, 5), answer(0, 3.0, 1.0, 5)])
        self.assertEqual((seconds, tokens), (2.0, 4.0))
        # 10 and 10 of the prompts, 3 and 1 tokens before it, one of two in the middle each.
        self.assertEqual(context, (10 + 3 + 1 + 10 + 1 + 1) / 2)

    def test_what_came_before_the_cut_counts(self):
        cut = Fleet(answers=[[answer(0, 1.0, 1.0, 5)]], unfinished=[(0, [2.0, 3.0, 4.0])], cut=True)
        self.assertEqual((cut.tokens, cut.wall), (8, 5.0))
        self.assertEqual(steady(cut.begun(10))[:2], (2.0, 4.0))
        self.assertIsNone(Fleet(unfinished=[(0, [])]).begun(10))

    def test_answers_that_follow_each_other_have_none(self):
        self.assertIsNone(steady([answer(0, 1.0, 1.0, 3), answer(0, 9.0, 1.0, 3)]))
        self.assertIsNone(steady([]))


def found(**more):
    """What a run has before its first part."""
    empty = {"rehearsal": False, "machine": {"device": "cuda"}, "cut": {}, "loud": [], "checks": [], "servers": {}}
    return empty | {"speed": {}, "generate": {}} | more


class Pages(unittest.TestCase):
    def test_a_run_without_figures_still_has_a_page(self):
        page = tables.page(found(cut={"small": "failed: a\nlong log"}))
        self.assertIn("- **small: failed: a**", page)
        self.assertNotIn("long log", page)

    def test_a_rehearsal_is_not_taken_for_figures(self):
        self.assertTrue(tables.page(found(rehearsal=True)).startswith("# REHEARSAL"))

    def test_a_failure_is_not_overlooked_and_cannot_break_the_table(self):
        check = {"model": "m", "name": "n", "ok": False, "text": "a|b\nc"}
        self.assertIn("| m | n | **FAILED** | a\\|b<br>c |", tables.page(found(checks=[check])))

    def test_a_burst_that_was_cut_says_so(self):
        figure = dict.fromkeys(("output_tokens_per_s", "whole_share", "decode_tokens_per_s", "decode_bound"), None)
        figure |= {"decode_share": None, "decode_hangs_on": None, "ttft_s": {"p50": None, "p99": None}, "streams": 4}
        figure |= {"client_cpu_shares": [0.9], "server_cores": 1.0, "client_bound": True, "failed": 0, "cut": True}
        figure |= {"requests": 1, "unfinished": 3, "tokens_in": 2, "tokens_out": 2}
        page = tables.page(found(speed={"m": {"bursts": [figure]}}))
        self.assertIn("**cut: 1 of 4 were whole**; **the client may be what bounds it**", page)


class OtherWeights:
    """A server whose weights change; `stale` keeps the cache of the old ones, `lost` never goes back, `fixed` cannot."""

    shape = shapes.TINY_QWEN3

    def __init__(self, stale=False, lost=False, fixed=False):
        self.stale, self.lost, self.fixed, self.weights = stale, lost, fixed, "a"

    async def offers(self, path):
        """Whether weights can be updated from disk."""
        return path == updates.FROM_DISK and not self.fixed

    async def post(self, path, fields):
        """An update."""
        self.weights = "b" if self.lost else fields["model_path"]

    async def choice(self, prompt, tokens, cache_salt=None):
        """Of two tokens, which depend on the weights."""
        ids = [1, 2] if self.weights == "a" else [3, 4]
        log_prob = -0.7 if self.stale and self.weights == "b" and cache_salt is None else -2.0
        return choice(ids, [log_prob, log_prob], [{"1": -2.0, "3": -2.1}] * 2) | {"text": ""}


class Updates(unittest.TestCase):
    bound = compare.Bound.of({"max": 0.1, "mean": 0.01})

    def ok(self, session):
        """What the check says."""
        [check], _ = asyncio.run(updates.update(session, "a", "b"))
        check.judge(self.bound)
        return check.ok

    def test_there_and_back_passes(self):
        self.assertTrue(self.ok(OtherWeights()))

    def test_a_cache_of_the_old_weights_fails(self):
        self.assertFalse(self.ok(OtherWeights(stale=True)))

    def test_weights_that_do_not_come_back_fail(self):
        self.assertFalse(self.ok(OtherWeights(lost=True)))

    def test_what_is_not_offered_is_told(self):
        self.assertIsNone(self.ok(OtherWeights(fixed=True)))


class Flags(unittest.TestCase):
    def test_a_flag_that_the_binary_lacks_is_left_out(self):
        binary = Binary.__new__(Binary)
        binary.path, binary._help = "tito", "  --max-num-seqs <N>\n  --device-memory <X>\n  --deterministic"
        flags = {"--device": "cuda", "--max-num-seqs": 8, "--deterministic": True}
        command = binary.command("dir", flags, ["--x", "1"])
        self.assertTrue(command.endswith("--max-num-seqs 8 --deterministic --x 1"), command)
        self.assertNotIn("--device ", command)
        self.assertIn("--port {port}", command)


if __name__ == "__main__":
    unittest.main()
