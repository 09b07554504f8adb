//! The list of routes, each with who may use it. There is no other way to add one, so none can be open by oversight.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use store::Role;
use utoipa::openapi::{OpenApi, PathItem};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt as _};

use crate::app::App;
use crate::problem::Problem;
use crate::visitor::Visitor;

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody: what is needed to log in.
    Public,
    /// Whoever is logged in.
    Viewer,
    /// Administrators.
    Admin,
}

impl Access {
    pub(crate) fn allows(self, visitor: Option<&Visitor>) -> bool {
        match self {
            Self::Public => true,
            Self::Viewer => visitor.is_some(),
            Self::Admin => visitor.is_some_and(|visitor| visitor.role == Role::Admin),
        }
    }
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its method.
    pub method: Method,
    /// Its path, with names in braces.
    pub path: String,
    /// Who may use it.
    pub access: Access,
}

/// Routes under way to a router.
pub(crate) struct Routes {
    router: OpenApiRouter<App>,
    list: Vec<Route>,
}

impl Routes {
    pub(crate) fn new(description: OpenApi) -> Self {
        Self { router: OpenApiRouter::with_openapi(description), list: Vec::new() }
    }

    /// A page, or whatever a browser loads.
    pub(crate) fn get<H, T>(self, access: Access, path: &str, handler: H) -> Self
    where
        H: axum::handler::Handler<T, App>,
        T: 'static,
    {
        self.page(access, Method::GET, path, on(MethodFilter::GET, handler))
    }

    /// What a form is sent to.
    pub(crate) fn post<H, T>(self, access: Access, path: &str, handler: H) -> Self
    where
        H: axum::handler::Handler<T, App>,
        T: 'static,
    {
        self.page(access, Method::POST, path, on(MethodFilter::POST, handler))
    }

    fn page(mut self, access: Access, method: Method, path: &str, handler: MethodRouter<App>) -> Self {
        self.router = self.router.route(path, handler.route_layer(middleware::from_fn_with_state(access, require)));
        self.list.push(Route { method, path: path.to_owned(), access });
        self
    }

    /// A handler with `#[utoipa::path]`, given by `utoipa_axum::routes!`: method and path are those of its description.
    pub(crate) fn api(mut self, access: Access, routes: UtoipaMethodRouter<App>) -> Self {
        for (path, item) in &routes.1.paths {
            for method in methods(item) {
                self.list.push(Route { method, path: path.clone(), access });
            }
        }
        let guarded = routes.map(|handler| handler.route_layer(middleware::from_fn_with_state(access, require)));
        self.router = self.router.routes(guarded);
        self
    }

    /// The router, the description of its API, and the list.
    pub(crate) fn split(self) -> (Router<App>, OpenApi, Vec<Route>) {
        let (router, description) = self.router.split_for_parts();
        (router, description, self.list)
    }
}

fn methods(item: &PathItem) -> Vec<Method> {
    let all = [
        (&item.get, Method::GET),
        (&item.put, Method::PUT),
        (&item.post, Method::POST),
        (&item.delete, Method::DELETE),
        (&item.patch, Method::PATCH),
    ];
    all.into_iter().filter(|(operation, _)| operation.is_some()).map(|(_, method)| method).collect()
}

/// Lets through whom the route is for.
async fn require(State(access): State<Access>, request: Request, next: Next) -> Response {
    let visitor = request.extensions().get::<Visitor>();
    match visitor {
        visitor if access.allows(visitor) => next.run(request).await,
        Some(visitor) => Problem::not_allowed(visitor.name()).into_response(),
        None => Problem::login().into_response(),
    }
}
