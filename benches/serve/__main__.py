"""What is run: the bench of one server, a comparison of several, or the self-test."""

import asyncio
import signal
import sys

from . import modes, options, report, selftest, session, versus
from .client import BenchError


def main():
    """Runs the bench; returns the exit status."""
    chosen = options.parse()
    if chosen.self_test:
        return selftest.run()
    try:
        asyncio.run(bench(chosen))
    except (BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0


async def bench(chosen):
    """Everything, in order."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    figures = {"machine": report.machine()}
    print(report.table(list(figures["machine"]), [[str(value) for value in figures["machine"].values()]]))
    if chosen.versus:
        await versus.versus(chosen, figures)
        return
    if session.BANDWIDTH in chosen.modes:
        figures["bandwidth"] = modes.bandwidth(chosen)
    if chosen.serve:
        figures["server"] = {}
        async with session.started(chosen, chosen.serve, figures["server"]) as served:
            await session.drive(chosen, served.url, figures, served)
        session.print_server(figures["server"])
    elif chosen.url:
        await session.drive(chosen, chosen.url, figures)
    if "bandwidth" in figures:
        modes.print_bandwidth(figures["bandwidth"], chosen, one_stream(figures))
    if chosen.json:
        report.write_json(chosen.json, figures)


def one_stream(figures):
    """Decode tokens a second of a stream alone, if that was measured."""
    for figure in figures.get("throughput", []):
        if (figure["streams"], figure["shape"]) == (1, "closed loop"):
            return figure["decode_tokens_per_s_p50"]
    return None


if __name__ == "__main__":
    sys.exit(main())
