"""Real data that needs no network and is never silently damaged, toy tasks, and batches of both.

The files behind the real data, their sources and their licenses are described in ``fetching``.
"""

from sciformer.data.augmentation import affine, random_affine
from sciformer.data.batching import batches
from sciformer.data.digits import digit_from_picture, mnist
from sciformer.data.fetching import (
    ASSETS,
    MISSING,
    MNIST_FILES,
    MNIST_SMALL_FILES,
    SHAKESPEARE_FILE,
    SHAKESPEARE_SMALL_FILE,
    SHAKESPEARE_URL,
    DataError,
    DataFile,
    DataRow,
    data_root,
    describe,
    fetch,
)
from sciformer.data.names import DIGIT_NAMES, NAME_LETTERS, digit_rows
from sciformer.data.series import windows
from sciformer.data.text import Vocabulary, shakespeare, text_batches, token_rows
from sciformer.data.toy import (
    DATE_FORMS,
    FIRST_DAY,
    ISO_DATES,
    LAST_DAY,
    LETTERS,
    STORY_WORDS,
    WRITTEN_DATES,
    DateForm,
    clustered_tokens,
    dates,
    lookup,
    repeated_blocks,
    reversals,
    stories,
)

__all__ = [
    "ASSETS",
    "DATE_FORMS",
    "DIGIT_NAMES",
    "FIRST_DAY",
    "ISO_DATES",
    "LAST_DAY",
    "LETTERS",
    "MISSING",
    "MNIST_FILES",
    "MNIST_SMALL_FILES",
    "NAME_LETTERS",
    "SHAKESPEARE_FILE",
    "SHAKESPEARE_SMALL_FILE",
    "SHAKESPEARE_URL",
    "STORY_WORDS",
    "WRITTEN_DATES",
    "DataError",
    "DataFile",
    "DataRow",
    "DateForm",
    "Vocabulary",
    "affine",
    "batches",
    "clustered_tokens",
    "data_root",
    "dates",
    "describe",
    "digit_from_picture",
    "digit_rows",
    "fetch",
    "lookup",
    "mnist",
    "random_affine",
    "repeated_blocks",
    "reversals",
    "shakespeare",
    "stories",
    "text_batches",
    "token_rows",
    "windows",
]
