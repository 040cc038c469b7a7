"""A tiny repository with one mistake and a test that finds it, for agents to repair.

Needs nothing but Python: its tests run with `python3 -m unittest`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPAIRED = '''\
"""Prices of a small shop, in cents."""


def total(prices):
    amount = 0
    for price in prices:
        amount += price
    return amount


def discounted(amount, percent):
    return amount - amount * percent // 100
'''
BROKEN = REPAIRED.replace("amount *", "amount +")
TESTS = """\
import unittest

from shop import discounted, total


class ShopTest(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total([100, 250]), 350)

    def test_discount(self):
        price = discounted(200, 10)
        self.assertEqual(price, 180)
"""


def failing_repo(folder: Path) -> Path:
    """The file with the mistake, `shop.py`; beside it are its tests."""
    (folder / "test_shop.py").write_text(TESTS)
    source = folder / "shop.py"
    source.write_text(BROKEN)
    return source


def is_repaired(folder: Path) -> bool:
    # -B: a cache of bytecode would hide an edit of the same second and size
    argv = [sys.executable, "-B", "-m", "unittest"]
    return subprocess.run(argv, cwd=folder, capture_output=True, check=False).returncode == 0
