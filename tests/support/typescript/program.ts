// A program over the generated client: `node program.js URL TOKEN`.
import { alerts, query, rejects, rollouts, tables } from "./client";
import { client } from "./client/client.gen";

const [, , baseUrl, token] = process.argv;
client.setConfig({ baseUrl, auth: token });

async function main(): Promise<void> {
  const body = { sql: "select page, sum(hits)::bigint as hits from page_hits group by all", rows: 1 };
  const { data: answer } = await query({ body });
  const rows: Array<{ [column: string]: unknown }> = answer!.rows;
  const cut: boolean = answer!.truncated;
  console.log(answer!.generation, rows.length, cut, answer!.columns.map((each) => each.type).join());
  console.log((await tables()).data!.map((each) => each["table"]).sort().join());
  console.log((await rejects({ query: { limit: 1 } })).data!.length);
  console.log("rollouts" in (await rollouts()).data!, "dead_letters" in (await alerts()).data!);
  const wrong = await query({ body: { sql: "select nothing from page_hits" } });
  console.log(wrong.response!.status, wrong.error!.title);
  const stranger = await tables({ auth: "wrong" });
  console.log(stranger.response!.status, stranger.data);
}

main();
