import { Chat } from "@ai-sdk/react";
import { lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import type { ChatInit, UIMessage } from "ai";

const tools: Record<string, (input: any) => Promise<unknown>> = {
  time_zone: async () => Intl.DateTimeFormat().resolvedOptions().timeZone,
};

export function withTools(init: ChatInit<UIMessage>): Chat<UIMessage> {
  const chat: Chat<UIMessage> = new Chat({
    ...init,
    onToolCall: ({ toolCall: { toolName: tool, toolCallId, input } }) => {
      // Not awaited: addToolOutput waits for the stream to end.
      void tools[tool]?.(input).then((output) => chat.addToolOutput({ tool, toolCallId, output }));
    },
    sendAutomaticallyWhen: (state) =>
      lastAssistantMessageIsCompleteWithToolCalls(state) ||
      (init.sendAutomaticallyWhen?.(state) ?? false),
  });
  return chat;
}
