// Copies the value of a field. False if the browser does not allow it; the value is selected then.
export async function copy(field) {
  try {
    await navigator.clipboard.writeText(field.value); // unavailable over http
    return true;
  } catch {
    field.select();
    return document.execCommand("copy");
  }
}
