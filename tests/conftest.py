"""What every test may ask of the command line."""

from pathlib import Path

OWN_VECTORS = Path(__file__).parent / "casebook" / "own"


def pytest_addoption(parser):
    """The casebook's folder is an option of the root, so that it is known whichever folder is collected."""
    group = parser.getgroup("casebook")
    group.addoption(
        "--casebook",
        metavar="DIR",
        type=Path,
        default=OWN_VECTORS,
        help="folder of casebook vectors (*.json); default: this project's own",
    )
    group.addoption(
        "--form",
        metavar="FORM[,FORM]",
        default="",
        help="only vectors of these forms; default: all",
    )
