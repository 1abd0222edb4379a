"""A token that nobody has issued, for asynchronous clients."""
from devtools_testutils import FakeTokenCredential


class AsyncFakeCredential:
    async def get_token(self, *scopes, **options):
        return FakeTokenCredential().get_token(*scopes, **options)

    async def close(self):
        """Nothing is open."""
