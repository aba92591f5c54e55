// Google's calendar as `emulate` plays it, for tests/integration/test_google_emulate.py: the seed comes as JSON on stdin,
// the address goes to stdout, and the end of stdin ends it. Its own command line wants a newer Node.js.
import { createEmulator } from "emulate";

const chunks = [];
for await (const chunk of process.stdin) {
  chunks.push(chunk);
  if (chunk.includes("\n")) break;
}
const emulator = await createEmulator({ service: "google", port: Number(process.argv[2]), seed: JSON.parse(chunks.join("")) });
process.stdout.write(`${emulator.url}\n`);
process.stdin.resume().on("end", () => process.exit(0));
