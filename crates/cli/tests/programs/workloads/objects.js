// Builds, drops and rebuilds objects, texts and typed arrays; prints a digest of them.
'use strict';
const { createHash } = require('node:crypto');
const items = Number(process.argv[2]);
const table = new Map();
for (let round = 0; round < 4; round++) {
  for (let i = 0; i < items; i++) {
    const key = (i * 7919 + round) % items;
    table.set(key, { key, text: `entry ${key} of ${round}`.repeat(2), list: [i, round, [key]] });
    if (i % 3 === 0) table.delete((key * 31) % items);
  }
}
const numbers = Float64Array.from({ length: items * 8 }, (_, i) => (i * 2654435761) % 1000003);
numbers.sort();
const texts = [...table.values()].map((entry) => JSON.stringify(entry)).sort();
const digest = createHash('sha256');
texts.forEach((text) => digest.update(text));
digest.update(numbers);
console.log(digest.digest('hex'), table.size, texts.length);
