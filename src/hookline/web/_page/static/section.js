// Sections that are shown in place of the conversation, one at a time. Each has a button in the header.

import { $ } from './dom.js';

let open = null; // what to do when the shown section is closed

export function makeSection(name, opened, closed = () => {}) {
  const show = () => {
    closeSection();
    document.body.classList.add('section-open');
    $(`show-${name}`).hidden = $(name).hidden = false;
    $(`show-${name}`).setAttribute('aria-expanded', 'true');
    $(`${name}-title`).focus();
    open = () => {
      document.body.classList.remove('section-open');
      $(name).hidden = true;
      $(`show-${name}`).setAttribute('aria-expanded', 'false');
      closed();
      $('say').focus();
    };
    opened();
  };
  $(`show-${name}`).addEventListener('click', () => ($(name).hidden ? show() : closeSection()));
  $(`close-${name}`).addEventListener('click', closeSection);
  return show;
}

// Returns whether a section was shown.
export function closeSection() {
  const close = open;
  open = null;
  close?.();
  return close !== null;
}
