const { createServer } = require("http");
const { performance } = require("perf_hooks");

function compute(ms) {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

const server = createServer((request, response) => {
  if (request.method === "PUT") compute(Number(request.url.slice(1)));
  response.end("ok");
});
server.keepAliveTimeout = 0;
server.listen(8080, "0.0.0.0");
