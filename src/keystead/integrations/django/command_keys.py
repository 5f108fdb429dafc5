"""The keyspace of the sessions under a fixed name, for commands. It follows the settings, which must be configured."""

from keystead.integrations.django.session_parts import session_keyspace

DjangoSessionKeys = session_keyspace()
