"""Writes tests/golden/families: what transformers makes of the models of family_cases.py.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0
    python record_families.py [NAME...]
"""

from family_cases import CASES
from recording import GOLDEN, record_all

if __name__ == "__main__":
    record_all(CASES, GOLDEN / "families", steady=True)
