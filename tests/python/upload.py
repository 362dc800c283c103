"""Sends a body with a Python client, and prints one line of JSON for each try: {"status": 413, "body": "..."} or {"error": "..."}.

Usage: upload.py httpx2|httpx1|requests URL CA CERT KEY FILE TRIES [HEADER...]; an empty CERT means none.
"""

import json
import ssl
import sys

import httpx
import requests


def with_httpx(two, url, ca, pair, body, headers):
    context = ssl.create_default_context(cafile=ca)
    if pair:
        context.load_cert_chain(*pair)
    with httpx.Client(http2=two, http1=not two, verify=context, timeout=120, trust_env=False) as client:
        response = client.post(url, content=body, headers=headers)
        return {"protocol": response.http_version, "status": response.status_code, "body": response.text}


def with_requests(url, ca, pair, body, headers):
    with requests.Session() as session:
        session.trust_env = False
        response = session.post(url, data=body, headers=headers, verify=ca, cert=pair, timeout=120)
        return {"protocol": "HTTP/1.1", "status": response.status_code, "body": response.text}


def main(client, url, ca, cert, key, file, tries, *lines):
    pair = (cert, key) if cert else None
    headers = dict(line.split(": ", 1) for line in lines)
    with open(file, "rb") as opened:
        body = opened.read()
    for _ in range(int(tries)):
        try:
            if client == "requests":
                outcome = with_requests(url, ca, pair, body, headers)
            else:
                outcome = with_httpx(client == "httpx2", url, ca, pair, body, headers)
        except Exception as error:
            outcome = {"error": repr(error)}
        print(json.dumps(outcome), flush=True)


main(*sys.argv[1:])
