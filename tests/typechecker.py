"""What checks the package's annotations in the tests: an int will do where a float is wanted, as mypy sees it."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
