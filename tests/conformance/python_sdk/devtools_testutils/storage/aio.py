"""The asynchronous side of the tests of the storage services."""
from devtools_testutils.storage import StorageRecordedTestCase


class AsyncStorageRecordedTestCase(StorageRecordedTestCase):
    """The same: nothing in it waits."""
