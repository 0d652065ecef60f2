// Stands for a test suite that keeps much in memory: 200,000 records, then looks at each.
const records = Array.from({ length: 200_000 }, (_, n) => ({ id: n, name: `record ${n}`, tags: [n % 7, n % 11] }))
const right = records.every(({ id, name, tags }) => name === `record ${id}` && tags[0] === id % 7)
console.log(right ? 'all records are right' : 'a record is wrong')
process.exit(right ? 0 : 1)
