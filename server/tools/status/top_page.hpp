// The page of `gpunbd top`: what is known of the server and what the user wants to see of it go in,
// cells come out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "server/tools/status/activity.hpp"
#include "server/tools/status/canvas.hpp"
#include "server/tools/status/keys.hpp"
#include "server/tools/status/snapshot.hpp"

namespace gpunbd::status {

// What is known.
struct Picture {
    std::string server;  // where it is asked
    Tick now;
    std::optional<Activity> activity = {};
    std::string trouble = {};    // why it cannot be asked; empty: it can
    double trouble_seconds = 0;  // for how long
};

enum class Sort { rate, requests, latency, used, clients, name };

// What the user wants to see.
struct View {
    Sort sort = Sort::rate;
    std::string selected = {};             // an export; where there is none of the name: the first
    std::optional<std::string> only = {};  // one export and its clients
    std::size_t passed_over = 0;           // clients, with `only`
    bool help = false;
};

// Key::quit is not for it.
void obey(Key key, const Picture& picture, PageSize size, View& view);

// As many rows as all of it takes.
std::size_t rows_for_all(const Picture& picture);

Canvas draw(const Picture& picture, const View& view, PageSize size);

}  // namespace gpunbd::status
