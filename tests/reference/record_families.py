"""Writes tests/golden/families: what transformers makes of the models of family_cases.py, latent_cases.py and
hybrid_cases.py.

    pip install numpy==2.4.6 torch==2.15.0 transformers==5.23.0
    python record_families.py [NAME...]
"""

import family_cases
import hybrid_cases
import latent_cases
from recording import GOLDEN, record_all

CASES = [*family_cases.CASES, *latent_cases.CASES, *hybrid_cases.CASES]

if __name__ == "__main__":
    record_all(CASES, GOLDEN / "families", steady=True)
