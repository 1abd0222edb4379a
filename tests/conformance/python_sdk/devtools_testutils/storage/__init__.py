"""What the tests of the storage services use beside the rest: addresses, credentials, random bytes, a log."""
import logging
import os
import random
from io import StringIO

from devtools_testutils import AzureRecordedTestCase, FakeTokenCredential
from devtools_testutils.fake_credentials_async import AsyncFakeCredential


class StorageRecordedTestCase(AzureRecordedTestCase):
    def setup_method(self):
        self.setUp()

    def setUp(self):
        """Classes have their own, or none."""

    def account_url(self, account, service):
        assert service == "queue", "only queues are tested here"
        return os.environ["SUITE_URL"].replace("{account}", getattr(account, "name", account))

    def connection_string(self, account, key):
        return f"DefaultEndpointsProtocol=https;AccountName={account};AccountKey={key};EndpointSuffix=core.windows.net"

    def get_credential(self, _client, is_async=False, **_):
        """Good for building a client; there is no issuer to get a token from."""
        return AsyncFakeCredential() if is_async else FakeTokenCredential()

    def get_datetime_variable(self, variables, _name, value):
        """Recordings keep times; live tests use the present."""
        variables[_name] = value.isoformat()
        return value

    def get_random_bytes(self, size):
        # Not os.urandom, which a test replaces.
        return random.randbytes(size)


class LogCaptured:
    """What the SDK logs while the block runs."""

    def __init__(self, _test=None):
        self.stream = StringIO()
        self.handler, self.logger = logging.StreamHandler(self.stream), logging.getLogger("azure.storage")

    def __enter__(self):
        self.level = self.logger.level
        self.logger.addHandler(self.handler)
        self.logger.setLevel(logging.DEBUG)
        return self.stream

    def __exit__(self, *_):
        self.logger.removeHandler(self.handler)
        self.logger.setLevel(self.level)
