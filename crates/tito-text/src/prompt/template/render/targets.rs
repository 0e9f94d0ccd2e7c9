//! What is assigned to.

use std::rc::Rc;

use super::super::error::Error;
use super::super::syntax::Target;
use super::super::value::{Value, error, items, type_name};
use super::renderer::{Renderer, check_attribute};
use super::scope::Scope;

impl<'t> Renderer<'t> {
    #[inline(never)]
    pub(super) fn assign(&mut self, target: &'t Target, value: Value, scope: &Rc<Scope<'t>>) -> Result<(), Error> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Attribute(name, attribute) => {
                let Some(Value::Namespace(place)) = self.lookup(name, scope) else {
                    return Err(error(format!("can only assign to attributes of namespaces, and '{name}' is none")));
                };
                check_attribute(attribute)?;
                self.namespaces[place].set(attribute, value);
            }
            Target::Tuple(targets) => {
                let values = match &value {
                    Value::Undefined => return Err(error("cannot unpack an undefined value")),
                    value => items(value)?,
                };
                if values.len() != targets.len() {
                    let (wanted, found) = (targets.len(), values.len());
                    let name = type_name(&value);
                    return Err(error(format!("cannot unpack a {name} of {found} values into {wanted}")));
                }
                for (target, value) in targets.iter().zip(values) {
                    self.assign(target, value, scope)?;
                }
            }
        }
        Ok(())
    }
}
