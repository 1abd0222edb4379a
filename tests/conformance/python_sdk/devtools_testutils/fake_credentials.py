"""Values in place of secrets. They are overwritten by the environment."""
import base64

STORAGE_ACCOUNT_FAKE_KEY = base64.b64encode(b"no key of any account").decode()
