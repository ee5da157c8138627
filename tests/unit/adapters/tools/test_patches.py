"""The files that a patch names: none is missed, and what cannot be read completely is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.effort import growth
from subluminal.adapters.tools.patches import named_in_patch, named_in_shell

PATCH = """*** Begin Patch
*** Add File: new.py
+print("*** Delete File: in a text")
*** Update File: old.py
*** Move to: moved.py
@@ def f():
 context
-old
+new
*** End of File
*** Delete File: a name with  blanks.txt
*** End Patch"""


def test_every_file_of_a_patch_is_named() -> None:
    named = named_in_patch(PATCH)
    assert named.paths == ["new.py", "old.py", "moved.py", "a name with  blanks.txt"] and named.complete


@pytest.mark.parametrize("change", [lambda text: f"\n  {text}\n\n", lambda text: text.replace("\n", "\r\n")])
def test_white_space_around_lines_changes_nothing(change: Callable[[str], str]) -> None:
    named = named_in_patch(change(PATCH))
    assert named.paths == named_in_patch(PATCH).paths and named.complete


def test_a_patch_written_as_for_a_shell_is_one() -> None:
    assert named_in_patch(f"<<'EOF'\n{PATCH}\nEOF") == named_in_patch(PATCH)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*** Begin Patch\n*** End Patch",
        PATCH.removesuffix("*** End Patch"),
        PATCH.removeprefix("*** Begin Patch\n"),
        PATCH.replace("*** Add File: new.py", "*** Create File: new.py"),
        PATCH.replace("*** Delete File: a", "--- a\n+++ b\n*** Delete File: a").replace("+++ b", "=== b"),
        PATCH + "\n" + PATCH,
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b",
    ],
)
def test_what_is_no_whole_patch_may_name_others(text: str) -> None:
    assert not named_in_patch(text).complete


@given(
    st.lists(st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=("Cs",)), min_size=1), max_size=5)
)
def test_no_name_is_lost_whatever_it_looks_like(names: list[str]) -> None:
    text = "\n".join(["*** Begin Patch", *(f"*** Delete File: {name}" for name in names), "*** End Patch"])
    found = named_in_patch(text)
    assert {name.strip() for name in names if name.strip()} <= {
        path.strip() for path in found.paths
    } or not found.complete


HERE = f"apply_patch <<'EOF'\n{PATCH}\nEOF"


@pytest.mark.parametrize(
    ("line", "directory"),
    [
        (HERE, ""),
        (HERE.replace("'EOF'", '"EOF"'), ""),
        (f"cd sub/dir && {HERE}\n", "sub/dir"),
        (f"cd 'a b' && {HERE}", "a b"),
    ],
)
def test_a_shell_line_that_only_applies_a_patch_names_its_files(line: str, directory: str) -> None:
    named = named_in_shell(line)
    assert named is not None and named.complete
    assert (named.paths, named.directory) == (named_in_patch(PATCH).paths, directory)


@pytest.mark.parametrize(
    "line",
    [
        HERE.replace("'EOF'", "EOF"),  # the shell still expands what is in it
        f"{HERE}\nrm x",
        f"cd $X && {HERE}",
        f"cd a; cd b && {HERE}",
        f"(cd a && {HERE})",
        f"{HERE}\nrm x\nEOF",
        "cat p.txt | apply_patch",
        "x=1 && exec apply_patch < p",
        "/usr/local/bin/apply_patch < p",
        "true; applypatch <p",
        "printf '*** Begin Patch\\n*** Add File: x\\n' | $tool",
        f"python3 - <<'E'\n{PATCH}\nE",
    ],
)
def test_any_other_line_with_a_patch_may_name_others(line: str) -> None:
    named = named_in_shell(line)
    assert named is not None and not named.complete


@pytest.mark.parametrize("line", ["ls", "grep -n apply_patch src", "git apply x.patch", "echo my_apply_patch", ""])
def test_a_line_without_a_patch_has_none(line: str) -> None:
    assert named_in_shell(line) is None


@pytest.mark.parametrize("piece", ["*** Add File: x\n", "apply_patch ", "/do/do", " \n", "\nEOF\n", "a;", "<<'E'\n"])
def test_reading_takes_time_in_proportion(piece: str) -> None:
    def work(size: int) -> None:
        text = piece * (size // len(piece))
        named_in_patch(text)
        named_in_shell(text)
        named_in_shell(f"apply_patch <<'EOF'\n{text}\nEOF{piece}")

    assert growth(work, 20_000, 400_000, 4) < 4
