"""Writes tests/golden/mistralrs: what transformers makes of the models of mistralrs_cases.py.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0
    python record_mistralrs.py [NAME...]
"""

from mistralrs_cases import CASES
from recording import GOLDEN, record_all

if __name__ == "__main__":
    record_all(CASES, GOLDEN / "mistralrs")
