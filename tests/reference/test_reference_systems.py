"""README.md has every row of the five libraries, and each row its test."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE / "README.md").read_text()
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"^(?:async )?def test_(\d{3})_", re.MULTILINE)

# The rows of each library: what its users can do. All numbers from 1 to 171 are among them.
LIBRARIES = {
    "ag2b": (
        "ag2b",
        "1-5 18-19 21-22 26 29-35 42-46 55-60 69-75 94 98-101 103 105 114-128 134-136 141-151 "
        "155 159-160 162 164-166",
    ),
    "philschmid": (
        "@philschmid/agent",
        "5 8 18 20 22 25 27-28 36 47-48 61-63 76-80 106 113 126 129-130 137 151-152 155 158 161 "
        "166 168",
    ),
    "instructor": (
        "Instructor agents (PHP)",
        "6-7 16-17 19 23-25 37-38 49-52 64 81-86 102 107-112 133 138 151-152 155 157-158 161 "
        "163-164 166-168 171",
    ),
    "vercel": (
        "experimental-agent (Vercel)",
        "9 18 41 68 87-89 102 131-132 139 154 156-157 161 166 168 170",
    ),
    "agentbuilder": (
        "AgentBuilder (standardagents)",
        "10-15 18-19 22 39-40 53-54 65-67 90-93 95-97 102 104 106 140 151 153 155 158 164 169",
    ),
}
# What hookline does not do at all, so that there is nothing to test.
REFUSED = {("agentbuilder", 54)}
LIBRARY = pytest.mark.parametrize("library", LIBRARIES)


def numbers(library):
    found = set()
    for part in LIBRARIES[library][1].split():
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def table(library):
    """{number: (there, here, difference)} of the library's section."""
    section = PAGE.split(f"\n## {LIBRARIES[library][0]}\n")[1].split("\n## ")[0]
    rows = ROW.findall(section)
    assert len({row[0] for row in rows}) == len(rows)
    return {int(number): cells for number, *cells in rows}


def numbers_tested(library):
    return {int(number) for number in TEST.findall((HERE / f"test_{library}.py").read_text())}


def test_every_number_is_a_row_of_some_library():
    every = set().union(*map(numbers, LIBRARIES))
    assert every == set(range(1, 172))
    assert set().union(*map(table, LIBRARIES)) == every


@LIBRARY
def test_the_librarys_table_has_its_rows(library):
    assert sorted(table(library)) == sorted(numbers(library))


@LIBRARY
def test_every_row_has_its_test_and_every_test_its_row(library):
    refused = {number for name, number in REFUSED if name == library}
    assert numbers_tested(library) == numbers(library) - refused


@LIBRARY
def test_what_is_refused_says_so_and_why(library):
    for name, number in REFUSED:
        if name == library:
            _, here, difference = table(library)[number]
            assert here.startswith("**no**: ")
            assert len(here) > 20
            assert len(difference) > 10


@LIBRARY
def test_every_row_says_something(library):
    for number, (there, here, difference) in table(library).items():
        assert there.strip(), number
        assert here.strip(), number
        assert difference.strip(), number
