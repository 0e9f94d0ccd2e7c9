"""The order of the files, which scripts/test hands to several processes, each file to one of them."""

# Files whose tests take minutes, the longest first: whichever came last would keep one process busy after the others. By the times
# of a whole run (2 cores of an Intel Xeon, 28 November 2026).
LONGEST = (
    "test_schema.py",
    "test_mistralrs.py",
    "test_thinking_budget.py",
    "test_engines.py",
    "test_routers.py",
    "test_replay.py",
    "test_control_soak.py",
    "test_rolling_restart.py",
    "test_native.py",
    "test_control_faults.py",
    "test_capture_replay.py",
    "test_trajectories.py",
)


def pytest_collection_modifyitems(items):
    """Leaves the other files, and the tests of each file, as they are."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))
