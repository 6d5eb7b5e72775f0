"""A payments service with Django, in one file: charge and record in one commit.

    DATABASE_URL=postgres://shop:shop@127.0.0.1:5432/shop PORT=3000 python service.py
"""

import json
import os
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.db import connection, transaction
from django.http import JsonResponse
from django.urls import path

url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path[1:],
            "USER": unquote(url.username or ""),
            "PASSWORD": unquote(url.password or ""),
            "HOST": url.hostname,
            "PORT": url.port or 5432,
        }
    },
)
django.setup()


# snippet: begin
@transaction.atomic  # Commits when the view returns, and rolls everything back if it raises.
def pay(request):
    execution, cents = request.headers["Onceward-Execution"], json.loads(request.body)["cents"]
    if cents <= 0:
        # Nothing was done: the gateway keeps this answer by its status.
        return JsonResponse({"detail": "a payment is at least one cent"}, status=422)
    with connection.cursor() as cursor:
        insert = "INSERT INTO payment (cents, execution) VALUES (%s, %s) RETURNING id"
        cursor.execute(insert, [cents, execution])
        (number,) = cursor.fetchone()
        response = JsonResponse({"id": number, "cents": cents}, status=201)
        headers = [list(line) for line in response.items()]
        # The record of the operation ends with this answer, in the same commit as the payment. If
        # another execution has taken over meanwhile, this raises SQLSTATE OW001.
        cursor.execute(
            "SELECT onceward.complete(%s, %s, %s::jsonb, %s)",
            [execution, response.status_code, json.dumps(headers), response.content],
        )
    return response
# snippet: end


urlpatterns = [path("payments", pay)]

if __name__ == "__main__":
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    from django.core.wsgi import get_wsgi_application

    WSGIRequestHandler.log_message = lambda *_: None
    make_server("127.0.0.1", int(os.environ["PORT"]), get_wsgi_application()).serve_forever()
