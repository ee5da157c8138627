// The filters of a list: the words of `sub query`, kept in the address.
import { useState } from "preact/hooks";
import { address, go, place, set } from "./address";
import type { Filter } from "./api.gen";
import { asking } from "./fleet";
import { oneLine, quoted } from "./text";

/** The command that asks for the same. */
export const command = (table: Filter[], words: URLSearchParams, name: string): string =>
  asking([`sub ${name}`, ...table.flatMap(({ word }) => words.getAll(word).map((value) => `--${word} ${quoted(value)}`))].join(" "));

export function Filters({ table, path }: { table: Filter[]; path: string }) {
  const words = place.value.words;
  const [chosen, choose] = useState(table.find((filter) => filter.word === "tool")?.word ?? table[0]!.word);
  const [value, setValue] = useState("");
  const filter = table.find(({ word }) => word === chosen)!;
  const add = (text: string) => {
    if (!text.trim()) return;
    const before = filter.many ? words.getAll(chosen).filter((one) => one !== text.trim()) : [];
    go(address(path, set(words, chosen, [...before, text.trim()])));
    setValue("");
  };
  const given = table.flatMap(({ word }) => words.getAll(word).map((one) => [word, one] as const));
  return (
    <form
      class="filters"
      role="search"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        add(value);
      }}
    >
      <select aria-label="Filter by" value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
        {table.map(({ word }) => (
          <option value={word}>{word}</option>
        ))}
      </select>
      {filter.words.length ? (
        <select aria-label={`Value of ${chosen}`} value="" onChange={(event) => add(event.currentTarget.value)}>
          <option value="">any</option>
          {filter.words.map((word) => (
            <option value={word}>{word}</option>
          ))}
        </select>
      ) : (
        <input
          id="filter-value"
          type="text"
          aria-label={`Value of ${chosen}`}
          placeholder={filter.help}
          value={value}
          onInput={(event) => setValue(event.currentTarget.value)}
        />
      )}
      <button type="submit">Filter</button>
      {given.map(([word, one]) => (
        <button
          type="button"
          class="chip"
          aria-label={`Remove filter ${word} ${oneLine(one)}`}
          onClick={() => go(address(path, set(words, word, words.getAll(word).filter((other) => other !== one))))}
        >
          {word}: <bdi>{oneLine(one)}</bdi> <span aria-hidden="true">×</span>
        </button>
      ))}
    </form>
  );
}
