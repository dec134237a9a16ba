"""What storm.py has its clients append."""

import random


def storm_record(seed, number):
    """1 to 4096 bytes that no other record has at the same place."""
    rng = random.Random(seed << 32 | number)
    return rng.randbytes(rng.randint(1, 4096))
