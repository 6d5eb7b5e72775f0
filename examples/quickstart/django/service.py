"""An ordinary service with Django and SQLite, in one file: it knows nothing of idempotency.

    python service.py runserver --noreload 3000
"""

import json
import sys
import time

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.db import connection
from django.http import JsonResponse
from django.urls import path
from django.views.decorators.http import require_http_methods

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "charges.db"}},
)
django.setup()


def answer(document, status=200):
    compact = {"separators": (",", ":")}
    return JsonResponse(document, status=status, safe=False, json_dumps_params=compact)


@require_http_methods(["GET", "POST"])
def charges(request):
    return create(request) if request.method == "POST" else list_all()


def create(request):
    cents = json.loads(request.body)["cents"]
    with connection.cursor() as db:
        db.execute("INSERT INTO charge (cents) VALUES (%s)", [cents])
        number = db.lastrowid
    if "slow" in request.GET:
        time.sleep(20)  # The charge is made, and its answer is on its way for long.
    return answer({"id": number, "cents": cents}, status=201)


def list_all():
    with connection.cursor() as db:
        db.execute("SELECT id, cents FROM charge ORDER BY id")
        return answer([{"id": number, "cents": cents} for number, cents in db.fetchall()])


urlpatterns = [path("charges", charges)]

if __name__ == "__main__":
    with connection.cursor() as db:
        table = "charge (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"
        db.execute(f"CREATE TABLE IF NOT EXISTS {table}")
    connection.close()
    execute_from_command_line(sys.argv)
