// A dialog: Ariakit keeps the focus in it and gives it back. Loaded when the first one opens.
import * as Ariakit from "@ariakit/react";
import type { ReactNode } from "react";

export interface DialogOf {
  title: string;
  close: () => void;
  children: ReactNode;
}

export default function Dialog({ title, close, children }: DialogOf) {
  return (
    <Ariakit.Dialog open onClose={close} className="dialog" backdrop={<div className="backdrop" />}>
      <Ariakit.DialogHeading>{title}</Ariakit.DialogHeading>
      {children}
    </Ariakit.Dialog>
  );
}
