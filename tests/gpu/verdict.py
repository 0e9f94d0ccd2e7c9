"""What a reference says of answers that a server gave."""

from .checks import Check
from .compare import Bound, with_reference


def by_reference(answers, told, wrong=False):
    """(checks, bound) from `[(prompt, choice)]` and the result of the job `reference`.

    `wrong` takes the log-probs of the reference's mistake for its own: a rehearsal of failing.
    """
    bound = Bound.of(told["rounded"])
    most, total, count, others = 0.0, 0.0, 0, 0
    for (prompt, choice), case in zip(answers, told["cases"], strict=True):
        found, summed, preferred = with_reference(prompt, choice, case, "mistaken" if wrong else "log_probs")
        most = max(most, found.most)
        total += summed
        count += found.compared
        others += preferred
    mean = total / count
    steps = sum(len(choice["token_ids"]) for _, choice in answers)
    text = f"{told['how']}: {count} log-probs of {len(answers)} prompts and answers at most {most:.2g} apart "
    text += f"({bound.most:.2g} allowed: {bound.why}), {mean:.2g} on average ({bound.mean:.2g} allowed); "
    text += f"of {steps} greedy tokens {others} are not the reference's, each a near tie"
    ok = most <= bound.most and mean <= bound.mean
    checks = [Check("log-probs against a reference", ok, text, figures={"most": most, "mean": mean, "others": others})]
    mistaken = told["mistaken"]
    shows = mistaken["max"] > 2 * bound.most and mistaken["mean"] > 2 * bound.mean
    text = f"positions counted double: off by {mistaken['max']:.2g} at most, {mistaken['mean']:.2g} on average"
    return [*checks, Check("a wrong model would be seen", shows, text)], bound


def without_reference(why):
    """(checks, bound) where there is none."""
    text = f"**NOT COMPARED with a reference: {why}**"
    return [Check("log-probs against a reference", None, text)], Bound.of(None)
