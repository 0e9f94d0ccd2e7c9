"""New weights in a running server, from a directory in memory and back: nothing but their numbers may change.

Asks in the form that SGLang's `/update_weights_from_disk` has. A server that lacks it is told as such.
"""

import time

from serve.client import BenchError

from .checks import Check, draw
from .compare import between

FROM_DISK = "/update_weights_from_disk"


async def update(session, here, there):
    """(checks, figures) of going to the weights `there`, and back to those `here`."""
    if not await session.offers(FROM_DISK):
        text = f"not offered: there is no {FROM_DISK}"
        return [Check("weights updated in place", None, text)], {"offered": False}
    prompt = draw(session.shape, "updated", 200)

    async def ask(**fields):
        choice = await session.choice(prompt, 8, **fields)
        return choice | {"text": None}

    before = await ask()
    seconds = [await timed(session, there, "there")]
    # Without a salt: keys and values of the old weights would be taken for the new ones' if they were still cached.
    other = await ask()
    stale = between(other, await ask(cache_salt="fresh"))
    seconds.append(await timed(session, here, "here"))
    after = await ask()
    moved = abs(before["logprobs"]["token_logprobs"][0] - other["logprobs"]["token_logprobs"][0])
    again = before["logprobs"] == after["logprobs"] and before["token_ids"] == after["token_ids"]
    text = f"{session.shape.file_bytes / 1e9:.1f} GB in {seconds[0]:.2f} s, and back in {seconds[1]:.2f} s; "
    text += f"the first log-prob moved by {moved:.2g}, and answers are {'the same' if again else 'NOT the same'} "
    text += "again; with the cache and without"
    ok = again and before["token_ids"] != other["token_ids"]
    figures = {"offered": True, "seconds": seconds, "bytes": session.shape.file_bytes}
    return [Check("weights updated in place", ok, text, stale.most)], figures


async def timed(session, directory, version):
    """Seconds that an update takes."""
    started = time.perf_counter()
    told = await session.post(FROM_DISK, {"model_path": str(directory), "weight_version": version})
    if isinstance(told, dict) and told.get("success") is False:
        raise BenchError(f"{FROM_DISK}: {told}")
    return time.perf_counter() - started
