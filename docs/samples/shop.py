#!/usr/bin/env python3
"""Writes shop.log.gz: one synthetic day of a shop, in the combined format. Same bytes each time.

600 people browse and most of them log in, one client fetches every item (192.0.2.66), one guesses passwords (192.0.2.13).
"""
import gzip, io, random, sys, time

rng = random.Random(20261102)
day = 1793577600  # 2026-11-02T00:00:00Z
lines = []

def add(at, client, request, status):
    lines.append((at, client, request, status))

for person in range(600):
    client = "198.51.100.%d" % (person % 254 + 1) if person < 254 else "203.0.%d.%d" % (100 + person // 250, person % 250 + 1)
    for _ in range(rng.randint(1, 4)):
        # People come between 7 and 23 o'clock, most of them in the evening.
        at = day + int(3600 * (7 + 16 * rng.betavariate(3, 2)))
        if rng.random() < 0.4:
            add(at, client, "POST /login", 200 if rng.random() < 0.85 else 401)
        for _ in range(rng.randint(3, 24)):
            at += int(rng.expovariate(1 / 12.0)) + 1
            add(at, client, rng.choice(["GET /items/%d" % rng.randint(1, 900), "GET /search", "GET /cart", "GET /"]), 200)

for number in range(2400):
    add(day + 2 * 3600 + number * 3 // 8, "192.0.2.66", "GET /items/%d" % (number + 1), 200)
for number in range(400):
    add(day + 13 * 3600 + number * 3, "192.0.2.13", "POST /login", 401)

lines.sort()
out = io.BytesIO()
with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9, mtime=0) as file:
    for at, client, request, status in lines:
        when = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(at))
        file.write(('%s - - [%s] "%s HTTP/1.1" %d 512 "-" "-"\n' % (client, when, request, status)).encode())
open(sys.argv[1] if len(sys.argv) > 1 else "shop.log.gz", "wb").write(out.getvalue())
