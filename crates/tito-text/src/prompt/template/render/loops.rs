//! `for`, and the variable `loop`.

use std::rc::Rc;

use super::super::arguments::Arguments;
use super::super::bounds::{self, Charge};
use super::super::error::Error;
use super::super::operators::equal;
use super::super::syntax::For;
use super::super::value::{Value, error, items};
use super::language::{Flow, Language};
use super::renderer::{Loop, Renderer};
use super::scope::Scope;

impl<'t> Renderer<'t> {
    #[inline(never)]
    pub(super) fn for_loop(&mut self, each: &'t For, scope: &Rc<Scope<'t>>) -> Result<Flow, Error> {
        let iterated = self.evaluate(&each.iterated, scope)?;
        self.run(each, &iterated, scope, 0)
    }

    fn run(&mut self, each: &'t For, iterated: &Value, scope: &Rc<Scope<'t>>, depth: usize) -> Result<Flow, Error> {
        let _level = bounds::descend()?;
        let items = items(iterated)?;
        let charge = Charge::new(items.capacity() * size_of::<Value>());
        let items = self.chosen(each, items, scope)?;
        self.loops_so_far += 1;
        let (number, count) = (self.loops_so_far, items.len());
        self.loops.push(Loop {
            number,
            definition: each,
            scope: Rc::clone(scope),
            index: 0,
            depth,
            changed: None,
            _charge: charge,
            items,
        });
        let place = self.loops.len() - 1;
        let mut inner = Scope::new(Some(scope));
        // As in jinja2: an iteration that `break` or `continue` ends does not count.
        let mut is_otherwise = true;
        for index in 0..count {
            bounds::step()?;
            self.loops[place].index = index;
            let item = self.loops[place].items[index].clone();
            // What an iteration sets ends with it. A macro may still need its scope.
            if Rc::strong_count(&inner) == 1 {
                inner.clear();
            } else {
                inner = Scope::new(Some(scope));
            }
            inner.set("loop", Value::Loop(number));
            self.assign(&each.target, item, &inner)?;
            match self.block(&each.body, &inner)? {
                Flow::On => is_otherwise = false,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        self.loops.truncate(place);
        if is_otherwise {
            return self.block(&each.otherwise, &Scope::new(Some(scope)));
        }
        Ok(Flow::On)
    }

    // The items that the loop's condition lets through.
    fn chosen(&mut self, each: &'t For, items: Vec<Value>, scope: &Rc<Scope<'t>>) -> Result<Vec<Value>, Error> {
        let Some(condition) = &each.condition else { return Ok(items) };
        // The loop does not run yet: `loop` is the one around it.
        let inner = Scope::new(Some(scope));
        let mut chosen = Vec::new();
        for item in items {
            self.assign(&each.target, item.clone(), &inner)?;
            if self.evaluate(condition, &inner)?.is_true() {
                chosen.push(item);
            }
        }
        Ok(chosen)
    }

    fn running(&mut self, number: usize) -> Result<&mut Loop<'t>, Error> {
        let found = self.loops.iter_mut().rev().find(|each| each.number == number);
        found.ok_or_else(|| error("a loop that has ended cannot be asked"))
    }

    pub(super) fn loop_attribute(&mut self, number: usize, name: &str) -> Result<Value, Error> {
        let each = self.running(number)?;
        let (index, count) = (each.index, each.items.len());
        Ok(match name {
            "index" => Value::from(index + 1),
            "index0" => Value::from(index),
            "revindex" => Value::from(count - index),
            "revindex0" => Value::from(count - index - 1),
            "first" => Value::from(index == 0),
            "last" => Value::from(index + 1 == count),
            "length" => Value::from(count),
            "depth" => Value::from(each.depth + 1),
            "depth0" => Value::from(each.depth),
            "previtem" => index.checked_sub(1).map(|before| each.items[before].clone()).unwrap_or_default(),
            "nextitem" => each.items.get(index + 1).cloned().unwrap_or_default(),
            _ => Value::UNDEFINED,
        })
    }

    pub(super) fn call_loop_method(
        &mut self,
        number: usize,
        name: &str,
        arguments: &Arguments<'_>,
    ) -> Result<Value, Error> {
        arguments.end(usize::MAX)?;
        let given = arguments.positional();
        let each = self.running(number)?;
        match name {
            "cycle" if given.is_empty() => Err(error("no items for cycling given")),
            "cycle" => Ok(given[each.index % given.len()].clone()),
            "changed" => {
                let last = each.changed.replace(given.to_vec());
                let Some(last) = last.filter(|last| last.len() == given.len()) else { return Ok(Value::from(true)) };
                for (last, value) in last.iter().zip(given) {
                    if !equal(last, value)? {
                        return Ok(Value::from(true));
                    }
                }
                Ok(Value::from(false))
            }
            _ => Err(error(format!("'LoopContext object' has no attribute '{name}'"))),
        }
    }

    /// `loop(items)`: runs a recursive loop over other items, one level deeper.
    pub(super) fn call_loop(&mut self, number: usize, arguments: &Arguments<'_>) -> Result<Value, Error> {
        let iterated = arguments.require(0, "iterable")?;
        arguments.end(1)?;
        let each = self.running(number)?;
        let (definition, scope, depth) = (each.definition, Rc::clone(&each.scope), each.depth + 1);
        if !definition.is_recursive {
            return Err(error("the loop must have the 'recursive' marker to be called recursively"));
        }
        self.begin_capture();
        self.run(definition, &iterated, &scope, depth)?;
        Ok(self.end_capture())
    }
}
