"""The service with django-idempotency-key, its storage and lock in memory."""

import json
import os
import threading
import time

import django
import waitress
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from django.views.decorators.http import require_POST

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[
        f"{__name__}.authentication",
        "idempotency_key.middleware.IdempotencyKeyMiddleware",
    ],
    # Retries get the status of the first answer.
    IDEMPOTENCY_KEY={"CONFLICT_STATUS_CODE": None},
)
django.setup()

total = 0
lock = threading.Lock()


def authentication(get_response):
    def middleware(request):
        if request.path != "/count" and not request.headers.get("Authorization"):
            return JsonResponse({"error": "no credential"}, status=401)
        return get_response(request)

    return middleware


def count(request):
    return JsonResponse({"total": total})


@require_POST
def charge(request):
    global total
    order = json.loads(request.body)
    if not isinstance(order.get("cents"), int):
        return JsonResponse({"error": "cents is missing"}, status=422)
    time.sleep(0.02)
    with lock:
        total += 1
        number = f"ch_{total}"
    document = {"id": number, "cents": order["cents"], "to": order.get("to")}
    # A response of Django has one line for each name.
    links = f'</charges/{number}>; rel="self", </refunds/{number}>; rel="refund"'
    headers = {"Location": f"/charges/{number}", "Link": links}
    return JsonResponse(document, status=201, headers=headers)


urlpatterns = [path("count", count), path("charges", charge)]

waitress.serve(get_wsgi_application(), host="127.0.0.1", port=int(os.environ["PORT"]), threads=16)
