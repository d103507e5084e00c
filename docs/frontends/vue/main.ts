import { Chat } from "@ai-sdk/vue";
import { createApp, h } from "vue";
import { open } from "./agent";
import App from "./App.vue";

open((init) => new Chat(init)).then(
  (chat) => createApp(App, { chat }).mount("#root"),
  (error: Error) => createApp(() => h("p", { role: "alert" }, error.message)).mount("#root"),
);
