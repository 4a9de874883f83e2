// An address that cannot be listened on: a one-line message with cause and remedy, and a code for
// callers.
#pragma once

#include <stdexcept>
#include <string>

#include "server/base/port_holder.hpp"

namespace gpunbd::server {

struct AddressError : std::runtime_error {
    enum class Kind {
        taken,   // another process listens there; `holder` names it if known
        absent,  // this machine has no such address
        other,
    };
    AddressError(Kind what_kind, const std::string& text, Holder who = {})
        : std::runtime_error(text), kind(what_kind), holder(std::move(who)) {}

    Kind kind;
    Holder holder;
};

}  // namespace gpunbd::server
