// Draws the page of `gpunbd top` from the state of a server and the view of the user.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "server/tools/status/activity.hpp"
#include "server/tools/status/canvas.hpp"
#include "server/tools/status/snapshot.hpp"
#include "server/tools/status/terminal.hpp"

namespace gpunbd::status {

// The known state.
struct Picture {
    std::string server;  // the address of the server
    Tick now;
    std::optional<Activity> activity = {};
    std::string trouble = {};    // the reason why the server is not reachable; empty: it is
    double trouble_seconds = 0;  // the duration of the trouble
};

enum class Sort { rate, requests, latency, used, clients, name };

// The view that the user has selected.
struct View {
    Sort sort = Sort::rate;
    std::string selected = {};             // an export; the first one if none has this name
    std::optional<std::string> only = {};  // a single export and its clients
    std::size_t skipped = 0;               // the number of skipped clients, with `only`
    bool help = false;
};

// Does not handle Key::quit.
void handle_key(Key key, const Picture& picture, PageSize size, View& view);

// The number of rows for the whole content.
std::size_t rows_for_all(const Picture& picture);

Canvas draw(const Picture& picture, const View& view, PageSize size);

}  // namespace gpunbd::status
