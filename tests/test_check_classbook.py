"""A class: one submission of each student, its mistakes counted, and points in Canvas's and Moodle's own tables."""

import csv

import pytest

from sciformer.check.classbook import fill_in, handed_in, mistakes_table, tallies
from sciformer.check.grading import Grade, Result
from sciformer.check.report import write_report
from sciformer.cli import main
from sciformer.functional import InputError


def result(kind="correct", faults=(), says="", exercise="scaled_dot_product"):
    return Result(exercise, 2 if kind == "correct" else 0, 2, kind, says or kind, "", tuple(faults))


RIGHT, TWICE = result(), result("known mistake", ["divided by D"], "The scores are divided by D, or twice by √D.")
EASY, STUB = result(exercise="masked_weights"), result("not attempted", exercise="masked_weights")


def canvas(user, submission, *results, late=False, again=""):
    name = f"lovelaceada_{'LATE_' if late else ''}{user}_{submission}_02_scaled{again}.ipynb"
    return Grade(name, results, ())


CLASS = [
    canvas(11, 501, RIGHT, EASY),
    canvas(12, 502, TWICE, EASY, late=True),
    canvas(13, 503, TWICE, STUB),
    canvas(13, 503, RIGHT, STUB, again="-1"),
]


def test_of_several_submissions_the_best_counts_or_the_last():
    worse_at_last = [canvas(1, 9, RIGHT, again="-9"), canvas(1, 9, TWICE, again="-10")]
    (best,) = handed_in(worse_at_last)
    (last,) = handed_in(worse_at_last, keep="last")
    assert (best.share, best.of) == (1.0, 2)
    assert (last.share, last.of) == (0.0, 2), "-10 comes after -9"


def test_what_is_late_is_worth_less_if_so_decided():
    assert {one.student: one.share for one in handed_in(CLASS, late=0.5)} == {"11": 1.0, "12": 0.25, "13": 0.5}
    assert {one.student: one.share for one in handed_in(CLASS)}["12"] == 0.5
    assert {one.student for one in handed_in(CLASS) if one.late} == {"12"}


def test_moodle_s_names_hold_the_participant_s_number():
    grade = Grade("out/Ada Lovelace_1234567_assignsubmission_file_/02.ipynb", (RIGHT,), ())
    assert handed_in([grade])[0].student == "1234567"
    assert handed_in([Grade("ada.ipynb", (RIGHT,), ())])[0].student == "ada.ipynb"


def test_mistakes_are_counted_among_those_who_tried():
    found = tallies(handed_in([*CLASS, canvas(14, 504, TWICE, result("raises", exercise="masked_weights"))]))
    text = mistakes_table(found, 4)
    assert text.splitlines() == [
        "scaled_dot_product: attempted by 4 of 4, 50% right",
        "   50%  divided by D",
        "masked_weights: attempted by 3 of 4, 67% right",
        "   33%  raises",
    ]


CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Old Quiz (7),Notebook 02 (8),Final Score
,,,,,,Manual Posting,
    Points Possible,,,,,5,10,(read only)
"Lovelace, Ada",11,U1,ada,01,4,,80
"Noether, Emmy",12,U2,emmy,01,5,,90
"Curie, Marie",99,U9,marie,01,5,7,90
"""


def test_canvas_gets_its_own_columns_back_and_points_of_what_is_possible(tmp_path):
    roster, out = tmp_path / "export.csv", tmp_path / "import.csv"
    roster.write_text("\ufeff" + CANVAS, encoding="utf-8")
    assert fill_in(handed_in(CLASS), roster, out, "Notebook 02") == (2, ["13"])
    rows = list(csv.reader(out.open(encoding="utf-8", newline="")))
    assert rows == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Notebook 02 (8)"],
        ["    Points Possible", "", "", "", "", "10"],
        ["Lovelace, Ada", "11", "U1", "ada", "01", "10"],
        ["Noether, Emmy", "12", "U2", "emmy", "01", "5"],
        ["Curie, Marie", "99", "U9", "marie", "01", "7"],
    ]


def test_a_column_that_canvas_lacks_is_a_new_assignment_with_the_exercises_points(tmp_path):
    roster, out = tmp_path / "export.csv", tmp_path / "import.csv"
    roster.write_text(CANVAS)
    fill_in(handed_in(CLASS), roster, out, "Notebook 03")
    rows = list(csv.reader(out.open(newline="")))
    assert [row[-1] for row in rows] == ["Notebook 03", "4", "4", "2", ""]


MOODLE = """Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,\
Last modified (submission),Last modified (grade),Feedback comments
Participant 21,Ada Lovelace,ada@example.org,Submitted for grading,,100.00,Yes,-,-,
Participant 22,Emmy Noether,emmy@example.org,Submitted for grading,55,100.00,No,-,-,fine
Participant 23,Marie Curie,marie@example.org,No submission,,100.00,Yes,-,-,
"""


def test_moodle_s_worksheet_gets_grades_and_feedback_where_they_may_be_changed(tmp_path):
    roster, out = tmp_path / "worksheet.csv", tmp_path / "filled.csv"
    roster.write_text(MOODLE)
    names = (
        "Ada_21_assignsubmission_file_a.ipynb",
        "Ada_21_assignsubmission_file_b.ipynb",
        "Emmy_22_assignsubmission_file_c",
    )
    grades = [
        Grade(names[0], (RIGHT, STUB), ()),
        Grade(names[1], (TWICE, STUB), ("late",)),
        Grade(names[2], (RIGHT,), ()),
    ]
    assert fill_in(handed_in(grades), roster, out, "") == (1, [])
    ada, emmy, marie = list(csv.DictReader(out.open(newline="", encoding="utf-8")))
    assert ada["Grade"] == "50"
    assert ada["Feedback comments"] == (
        "scaled_dot_product: 2 of 2. correct<br>masked_weights: 0 of 2. not attempted<br>"
        "It is the one of 2 submissions that counts."
    )
    assert (emmy["Grade"], emmy["Feedback comments"]) == ("55", "fine")
    assert marie["Grade"] == ""
    assert ada["Last modified (submission)"] == "-"


@pytest.mark.parametrize("content", ["", "a,b,c\n1,2,3\n", "\x00", "Identifier,Name\n"])
def test_another_table_is_refused(tmp_path, content):
    (tmp_path / "roster.csv").write_text(content)
    with pytest.raises(InputError, match=r"roster\.csv"):
        fill_in(handed_in(CLASS), tmp_path / "roster.csv", tmp_path / "out.csv", "x")
    assert not (tmp_path / "out.csv").exists()


def test_the_command_shows_draws_and_fills_in(tmp_path, capsys):
    write_report(CLASS, 3, tmp_path / "grades.json")
    (tmp_path / "export.csv").write_text(CANVAS)
    picture, out = tmp_path / "mistakes.png", tmp_path / "import.csv"
    options = ["--roster", str(tmp_path / "export.csv"), "--out", str(out), "--column", "Notebook 02", "--late", "0.5"]
    assert main(["class", str(tmp_path / "grades.json"), "--picture", str(picture), *options]) == 0
    said = capsys.readouterr().out
    assert "scaled_dot_product: attempted by 3 of 3, 67% right" in said
    assert f"written: {out}, 2 rows filled in\nnot in the table: 13\n" in said
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [row[-1] for row in csv.reader(out.open(newline=""))][-3:] == ["10", "2.5", "7"]


@pytest.mark.parametrize("option", ["--picture", "--out"])
def test_a_file_of_another_kind_is_not_replaced(tmp_path, capsys, option):
    write_report(CLASS, 3, tmp_path / "grades.json")
    with pytest.raises(SystemExit):
        main(["class", str(tmp_path / "grades.json"), option, str(tmp_path / "thesis.tex")])
    assert "does not end in ." in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--roster", "export.csv"], ["--out", "import.csv"]])
def test_a_roster_and_where_to_write_it_go_together(tmp_path, capsys, arguments):
    write_report(CLASS, 3, tmp_path / "grades.json")
    assert main(["class", str(tmp_path / "grades.json"), *arguments]) == 1
    assert "--roster and --out go together" in capsys.readouterr().err
