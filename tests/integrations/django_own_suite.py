"""Run Django's own tests of caches and sessions against Keystead: `python django_own_suite.py SOURCE URL`.

SOURCE is the unpacked source distribution of Django, URL that of a store. Prints a JSON object: how many tests ran, and
which failed. It runs in a process of its own, because Django has one configuration for a process.
"""

import json
import sys
from unittest import TestSuite, defaultTestLoader

OF_OTHER_CACHES = (
    *("CacheUtils", "PrefixedCacheUtils", "CacheHEADTest", "CacheI18nTest", "PrefixedCacheI18nTest"),
    *("CacheMiddlewareTest", "TestWithTemplateResponse"),
)


def main(source: str, url: str) -> None:
    sys.path.insert(0, f"{source}/tests")
    import django
    from django.conf import settings

    cache = {"BACKEND": "keystead.integrations.django.KeysteadCache", "LOCATION": url}
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    settings.configure(
        CACHES={"default": cache},
        DATABASES={"default": database, "other": database},
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        INSTALLED_APPS=["django.contrib.sessions", "cache", "sessions_tests"],
        KEYSTEAD={"STORE": url},
        LANGUAGE_CODE="en",
        SECRET_KEY="of the tests",
        SESSION_ENGINE="keystead.integrations.django.sessions",
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
        USE_TZ=False,  # as in the settings of Django's own tests
    )
    django.setup()
    import cache.tests as caches  # type: ignore[import-not-found]
    import sessions_tests.tests as sessions  # type: ignore[import-not-found]
    from django.test import SimpleTestCase, TestCase, override_settings
    from django.test.runner import DiscoverRunner

    from keystead.integrations.django.sessions import SessionStore

    # As for Redis and Memcached in Django's own suite: the server has no number of entries to keep.
    without_culling = caches.caches_setting_for_tests(base=cache, exclude={"cull", "zero_cull"})

    @override_settings(CACHES=without_culling)
    class CacheTests(caches.BaseCacheTests, TestCase):  # type: ignore[misc]
        pass

    class SessionTests(sessions.SessionTestsMixin, SimpleTestCase):  # type: ignore[misc]
        backend = SessionStore

    @override_settings(USE_TZ=True)
    class SessionWithTimeZoneTests(SessionTests):
        pass

    class SessionsInCacheTests(sessions.CacheSessionTests):  # type: ignore[misc]
        """Django's own sessions, in our cache."""

    class SessionsInCacheAndDatabaseTests(sessions.CacheDBSessionTests):  # type: ignore[misc]
        pass

    def on_ours(name: str) -> type:
        """A class of tests that names another cache in its settings, with ours."""
        base = getattr(caches, name)
        theirs = base._overridden_settings["CACHES"]
        ours = {
            alias: {**{key: value for key, value in given.items() if key != "LOCATION"}, **cache}
            for alias, given in theirs.items()
        }
        for alias in ours.keys() - {"default"}:
            ours[alias]["KEY_PREFIX"] = alias  # where theirs has a location of its own
        made: type = override_settings(CACHES=ours)(type(name, (base,), {}))
        return made

    suites = [
        CacheTests,
        *map(on_ours, OF_OTHER_CACHES),
        caches.CacheHandlerTest,
        SessionTests,
        SessionWithTimeZoneTests,
        SessionsInCacheTests,
        SessionsInCacheAndDatabaseTests,
        sessions.SessionMiddlewareTests,
    ]

    class Runner(DiscoverRunner):  # type: ignore[misc]
        def build_suite(self, *arguments: object, **options: object) -> TestSuite:
            return TestSuite(defaultTestLoader.loadTestsFromTestCase(one) for one in suites)

        def suite_result(self, suite: TestSuite, result: object, **options: object) -> int:
            bad = [*result.failures, *result.errors, *((one, "") for one in result.unexpectedSuccesses)]  # type: ignore[attr-defined]
            report = {
                "version": django.__version__,
                "ran": result.testsRun,  # type: ignore[attr-defined]
                "skipped": sorted(one.id().split(".")[-1] for one, _ in result.skipped),  # type: ignore[attr-defined]
                "failed": {one.id().split(".")[-1]: text[-600:] for one, text in bad},
            }
            print(json.dumps(report))
            return 0

    Runner(verbosity=0).run_tests([])


if __name__ == "__main__":
    main(*sys.argv[1:])
