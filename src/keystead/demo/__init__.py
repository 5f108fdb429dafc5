"""The demo: a sign-in provider that needs no account, and a stand-in for Patreon. Production does not import it."""
