//! The terminal: taken, drawn on and listened to by a thread of its own, and given back.
//!
//! Invariant: once the thread has ended, or [`give_back`] was called, the terminal is as it was.

use super::figures::{Figures, Past};
use super::frame::{Picture, draw};
use super::snapshot::Snapshot;
use super::style::Palette;
use crate::timeline::join_within;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{self, IsTerminal, Stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two pictures.
const EVERY: Duration = Duration::from_millis(250);
/// Between two looks at what was pressed.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A key that is pressed again within this time is held down.
const HELD: Duration = Duration::from_millis(500);
/// Without a step for so long the view says so.
const LONG_WITHOUT_STEP: Duration = Duration::from_secs(3);
/// How long a picture, or the end of the thread, is waited for before the terminal is given back all the same.
const PATIENCE: Duration = Duration::from_millis(500);

/// The terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// A picture is on its way to it.
static DRAWING: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back where it is taken; whatever is printed next is on the normal screen. For those who end the
/// process, or print about a panic.
pub fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let since = Instant::now();
    while DRAWING.load(Ordering::SeqCst) && since.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    restore();
}

fn restore() {
    execute!(
        io::stderr(),
        LeaveAlternateScreen,
        ratatui::crossterm::cursor::Show
    )
    .ok();
    disable_raw_mode().ok();
}

/// Whether there is a terminal to draw on that nothing else is printed to.
pub fn is_possible() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !is_dumb
        && io::stdin().is_terminal()
        && io::stdout().is_terminal()
        && io::stderr().is_terminal()
}

/// A view of a run.
pub struct Live {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    latest: Mutex<Option<Snapshot>>,
    is_over: AtomicBool,
}

impl Live {
    /// Takes the terminal; `stop` is called for each `q` or Ctrl-C.
    ///
    /// # Errors
    /// A terminal that cannot be used.
    pub fn start(name: &str, stop: impl Fn() + Send + 'static) -> io::Result<Live> {
        let shared = Arc::new(Shared::default());
        let known = Snapshot {
            name: name.to_owned(),
            ..Snapshot::default()
        };
        let terminal = take()?;
        let told = shared.clone();
        let thread = thread::Builder::new()
            .name("live view".to_owned())
            .spawn(move || {
                // Whatever happens in it, the terminal is given back.
                let _returned = Returned;
                View::new(terminal, known, Box::new(stop)).run(&told).ok();
            });
        let thread = thread.inspect_err(|_| give_back())?;
        Ok(Live {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Shows this from now on.
    pub fn tell(&self, snapshot: Snapshot) {
        let mut latest = self.shared.latest.lock();
        *latest
            .as_deref_mut()
            .unwrap_or_else(|error| error.get_mut()) = Some(snapshot);
    }

    /// Gives the terminal back.
    pub fn finish(&self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let thread = self.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.thread().unpark();
            // A terminal that takes nothing would be waited for forever.
            join_within(thread, PATIENCE);
        }
        give_back();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Gives the terminal back when it is dropped.
struct Returned;

impl Drop for Returned {
    fn drop(&mut self) {
        DRAWING.store(false, Ordering::SeqCst);
        give_back();
    }
}

type Screen = Terminal<CrosstermBackend<Stderr>>;

fn take() -> io::Result<Screen> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    let taken = execute!(io::stderr(), EnterAlternateScreen);
    let terminal = taken.and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
    terminal.inspect_err(|_| give_back())
}

/// The thread's own.
struct View {
    terminal: Screen,
    stop: Box<dyn Fn() + Send>,
    palette: Palette,
    began: Instant,
    past: Past,
    snapshot: Snapshot,
    figures: Option<Figures>,
    stepped: Instant,
    /// When it was last asked to stop.
    asked: Option<Instant>,
}

impl View {
    fn new(terminal: Screen, snapshot: Snapshot, stop: Box<dyn Fn() + Send>) -> View {
        View {
            terminal,
            stop,
            palette: Palette::of_environment(),
            began: Instant::now(),
            past: Past::default(),
            snapshot,
            figures: None,
            stepped: Instant::now(),
            asked: None,
        }
    }

    /// Until the run is over, or somebody else has given the terminal back.
    fn run(&mut self, shared: &Shared) -> io::Result<()> {
        self.draw()?;
        let mut drawn = Instant::now();
        while !shared.is_over.load(Ordering::SeqCst) && TAKEN.load(Ordering::SeqCst) {
            // Not in the terminal's own poll, which the end of the run could not cut short.
            thread::park_timeout(LOOK_EVERY);
            let mut due = drawn.elapsed() >= EVERY;
            while event::poll(Duration::ZERO)? {
                due |= self.hear(&event::read()?);
            }
            if due {
                let latest = shared.latest.lock();
                let latest = latest.unwrap_or_else(PoisonError::into_inner).take();
                self.take_in(latest);
                self.draw()?;
                drawn = Instant::now();
            }
        }
        Ok(())
    }

    /// Whether what was heard changes the picture.
    fn hear(&mut self, event: &Event) -> bool {
        match event {
            Event::Key(key) if is_stop(key) => {
                let before = self.asked.replace(Instant::now());
                // A key that is held down is pressed once.
                if before.is_none_or(|before| before.elapsed() > HELD) {
                    (self.stop)();
                }
                true
            }
            Event::Resize(..) => true,
            _ => false,
        }
    }

    fn take_in(&mut self, latest: Option<Snapshot>) {
        let Some(snapshot) = latest else {
            return;
        };
        if snapshot.steps > self.snapshot.steps {
            self.stepped = Instant::now();
        }
        self.figures = self.past.figures(&snapshot);
        self.snapshot = snapshot;
    }

    fn footer(&self) -> String {
        if self.asked.is_some() {
            return "stopping; press q or Ctrl-C again to end at once, without a report".to_owned();
        }
        let keys = "q or Ctrl-C: stop and print the report";
        let without = self.stepped.elapsed();
        let step = self.figures.as_ref().map_or(Duration::ZERO, |figures| {
            let rate = figures.samples_per_second.run;
            Duration::try_from_secs_f64(self.samples_a_step() / rate).unwrap_or_default()
        });
        match without > LONG_WITHOUT_STEP.max(3 * step) && self.figures.is_some() {
            true => format!("{keys}   no step for {} s", without.as_secs()),
            false => keys.to_owned(),
        }
    }

    fn samples_a_step(&self) -> f64 {
        let totals = self.snapshot.totals.as_ref();
        totals.map_or(0.0, |totals| {
            totals.samples as f64 / totals.steps.max(1) as f64
        })
    }

    fn draw(&mut self) -> io::Result<()> {
        let footer = self.footer();
        let picture = Picture {
            snapshot: &self.snapshot,
            figures: self.figures.as_ref(),
            elapsed: self.began.elapsed(),
            footer: &footer,
            palette: self.palette,
        };
        DRAWING.store(true, Ordering::SeqCst);
        let drawn = match TAKEN.load(Ordering::SeqCst) {
            true => self.terminal.draw(|frame| draw(frame, &picture)).map(drop),
            false => Ok(()),
        };
        DRAWING.store(false, Ordering::SeqCst);
        drawn
    }
}

/// In raw mode Ctrl-C is a key like any other.
fn is_stop(key: &KeyEvent) -> bool {
    let is_interrupt =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_interrupt || key.code == KeyCode::Char('q'))
}
