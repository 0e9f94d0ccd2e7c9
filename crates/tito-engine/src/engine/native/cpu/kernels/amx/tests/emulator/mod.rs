//! AMX for processors that lack it, so that the kernels' own machine code runs in the tests everywhere.
//!
//! Owns the handler of the signal that an unknown instruction raises. Where the processor has AMX, none is raised.

mod decode;
mod tiles;

use std::{cell::UnsafeCell, mem, ptr, sync::Once};

use decode::Registers;
pub(super) use tiles::{step, widen};

use tiles::Tiles;

/// Where the sixteen registers lie in a signal's context, in the order of their numbers.
const GENERAL: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

thread_local! {
    static TILES: UnsafeCell<Tiles> = const { UnsafeCell::new(Tiles::released()) };
}

/// Makes AMX instructions work in this process.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_unknown_instruction;
        // SAFETY: an all-zero `sigaction` is one without flags and mask, and the handler has the type of its flag.
        let outcome = unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, &raw const action, ptr::null_mut())
        };
        assert_eq!(outcome, 0, "the handler cannot be installed");
    });
}

/// Executes the instruction and steps over it. It allocates nothing and takes no lock, as a handler must.
extern "C" fn on_unknown_instruction(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the third argument is the context, which is this handler's alone.
    let saved = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let register = |number: libc::c_int| saved[usize::try_from(number).unwrap_or(0)].cast_unsigned();
    let at = register(libc::REG_RIP);
    // SAFETY: the processor has read at least as much of the instruction as `decode` takes to know it.
    let code = (at..).map(|address| unsafe { (address as *const u8).read() });
    let Some((instruction, length)) = decode::decode(code) else { return give_up(b"not an AMX instruction\n") };
    let registers = Registers { general: GENERAL.map(register), next: at + length };
    // SAFETY: the thread that waits for this handler is the only one to use its tiles; the signal is masked meanwhile.
    // What the instruction spans is as good as the kernel under test is right.
    let outcome = TILES.with(|tiles| unsafe { (*tiles.get()).execute(&instruction, &registers) });
    if let Err(fault) = outcome {
        complain(fault.as_bytes());
        return give_up(b": a processor with AMX would have faulted\n");
    }
    saved[usize::try_from(libc::REG_RIP).unwrap_or(0)] = registers.next.cast_signed();
}

fn complain(text: &[u8]) {
    // SAFETY: writes bytes that are there, to standard error.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// Lets the instruction end the process as it would without a handler.
fn give_up(text: &[u8]) {
    complain(text);
    // SAFETY: takes this module's own handler away; the instruction is then met again.
    unsafe { libc::signal(libc::SIGILL, libc::SIG_DFL) };
}
