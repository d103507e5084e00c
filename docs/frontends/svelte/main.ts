import { Chat } from "@ai-sdk/svelte";
import { mount } from "svelte";
import { open } from "./agent";
import App from "./App.svelte";

const target = document.getElementById("root")!;
open((init) => new Chat(init)).then(
  (chat) => mount(App, { target, props: { chat } }),
  (error: Error) => target.append(error.message),
);
