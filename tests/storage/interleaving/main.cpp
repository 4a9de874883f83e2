// Explores the interleavings of the verbs of the page map: each combination of two and of three
// scripts, from each start, with a bounded number of preemptions.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "storage/assertions/assert.hpp"
#include "storage/base/control_groups.hpp"
#include "storage/devices/slab_copy.hpp"
#include "tests/storage/interleaving/arena.hpp"
#include "tests/storage/interleaving/exports.hpp"
#include "tests/storage/interleaving/model.hpp"
#include "tests/storage/interleaving/scheduler.hpp"

namespace gpunbd {

void fail_assertion(const char* sentence, const char*, const char* file, int line) noexcept {
    interleaving::fail(fmt::format("assertion at {}:{}: {}", file, line, sentence));
}

namespace storage {

// One table of pins: all fibers are one thread, so they would use the same one.
unsigned usable_cpus() { return 1; }

Status Device::copy(const Slab&, std::uint64_t, const Slab&, std::uint64_t, std::uint64_t) {
    interleaving::fail("the device of this test has a copy of its own");
}
// All pools are on one device, which copies.
SlabCopier::SlabCopier(std::uint32_t chunk) : chunk_(chunk) {}
SlabCopier::~SlabCopier() = default;
void SlabCopier::close_if_idle() {}
void SlabCopier::open(Device&) { interleaving::fail("no page of this test is in spill memory"); }
Status SlabCopier::copy(SlabPosition, SlabPosition, std::uint64_t) {
    interleaving::fail("a copy within a device uses no channel");
}

}  // namespace storage

}  // namespace gpunbd

namespace gpunbd::interleaving {

namespace {

enum class Verb : std::uint8_t { read, write, fill, unmap, move, cancel, clone, remove, lose };

struct Step {
    Verb verb = Verb::read;
    unsigned volume = 0;
    unsigned page = 0;
};

struct Script {
    const char* name;
    std::vector<Step> steps;
};

constexpr unsigned of_clone = max_volumes;  // the volume that the script has made

const std::vector<Script> scripts = {
    {"read", {{Verb::read, 0, 0}}},
    {"write", {{Verb::write, 0, 0}}},
    {"fill", {{Verb::fill, 0, 0}}},
    {"unmap", {{Verb::unmap, 0, 0}}},
    {"move", {{Verb::move, 0, 0}}},
    {"cancel", {{Verb::cancel, 0, 0}}},
    {"clone", {{Verb::clone, 0, 0}, {Verb::read, of_clone, 0}}},
    {"renew", {{Verb::unmap, 0, 0}, {Verb::write, 0, 0}}},
    {"unmap_write", {{Verb::unmap, 0, 0}, {Verb::write, 0, 1}}},
    {"write_both", {{Verb::write, 0, 0}, {Verb::write, 0, 1}}},
    {"c.read", {{Verb::read, 1, 0}}},
    {"c.write", {{Verb::write, 1, 0}}},
    {"c.fill", {{Verb::fill, 1, 0}}},
    {"c.unmap", {{Verb::unmap, 1, 0}}},
    {"c.remove", {{Verb::remove, 1, 0}}},
};
const std::vector<Script> scripts_of_chosen = {
    {"fill_write", {{Verb::fill, 0, 0}, {Verb::write, 0, 1}}},
    {"write_clone", {{Verb::write, 0, 0}, {Verb::clone, 0, 0}}},
    {"unmap_clone", {{Verb::unmap, 0, 0}, {Verb::clone, 0, 0}}},
    {"clone_write", {{Verb::clone, 0, 0}, {Verb::write, of_clone, 0}}},
    {"lose", {{Verb::lose, 0, 0}}},  // a page is unmapped while it moves, which fails
    {"clone_unmap_write", {{Verb::clone, 0, 0}, {Verb::unmap, 0, 0}, {Verb::write, of_clone, 0}}},
};

struct StartName {
    Start start;
    const char* name;
    bool has_clone;
};

constexpr StartName starts[] = {
    {Start::own, "own", false},         {Start::full, "full", false},
    {Start::spilled, "spilled", false}, {Start::sole, "sole", false},
    {Start::scarce, "scarce", false},   {Start::apart, "apart", true},
    {Start::shared, "shared", true},    {Start::shared_in_spill, "shared_in_spill", true},
};

bool moves(const Script& script) {
    return script.steps[0].verb == Verb::move || script.steps[0].verb == Verb::cancel;
}

bool uses_clone(const Script& script) { return script.steps[0].volume == 1; }

// Scenarios that find faults which the combinations do not.
struct Chosen {
    const char* name;
    Start start;
    std::vector<const char*> scripts;
};
const std::vector<Chosen> chosen = {
    {"own", Start::own, {"move", "clone", "renew"}},     // a clone marks the page that follows
    {"own", Start::own, {"write", "unmap", "clone"}},    // the copy of a page that is trimmed
    {"own", Start::own, {"write", "write", "clone"}},    // a copy of a page that is being written
    {"own", Start::own, {"read", "clone_unmap_write"}},  // a page that is sent in place
    {"own", Start::own, {"read", "clone_unmap_write", "cancel"}},  // the same, while it moves
    {"own", Start::own, {"read", "clone_write", "lose"}},
    {"sole", Start::sole, {"read", "clone_unmap_write"}},
    {"full", Start::full, {"read", "write_both", "unmap_clone"}},  // a retired page during a clone
    {"shared", Start::shared, {"write", "write_clone", "c.unmap"}},  // a copy that is old
    {"shared_in_spill", Start::shared_in_spill, {"clone", "fill_write"}},
};

// Triples of others take long, and find no other faults.
bool is_short(const std::vector<const Script*>& together) {
    const auto is_long = [](const Script* each) {
        return each->steps[0].verb == Verb::cancel ||
               (each->steps.size() == 2 && each->steps[0].verb != Verb::clone);
    };
    return std::ranges::count_if(together, is_long) <= 1;
}

// What the product allows: one thread at a time moves a page of a given number, and nothing uses a
// volume that is being removed.
bool may_meet(const Script& a, const Script& b) {
    if (moves(a) && moves(b)) return false;
    const bool removes = a.steps[0].verb == Verb::remove || b.steps[0].verb == Verb::remove;
    return !(removes && uses_clone(a) && uses_clone(b));
}

Exports* exports = nullptr;
Contents first;
History history;

void announce(unsigned number, bool begins, std::uint64_t value = 0) {
    note(number * 2 + (begins ? 1 : 0) + value * 64);
}

unsigned begin(const Operation& operation) {
    const arena::Use outside(false);
    const unsigned number = history.begin(operation);
    announce(fiber(), true);
    return number;
}

void end(unsigned number, std::uint8_t value) {
    const arena::Use outside(false);
    history.end(number, value);
    announce(fiber(), false, value);
}

void run(const Step& step, std::uint8_t value) {
    using Kind = Operation::Kind;
    const unsigned volume = step.volume == of_clone ? 2 + fiber() : step.volume;
    const unsigned page = step.page;
    const unsigned word = fiber() % page_words;
    pause();
    if (logs_steps()) {
        constexpr std::array names = {"read",   "write", "fill",   "unmap", "move",
                                      "cancel", "clone", "remove", "lose"};
        log_step(fmt::format("--- {} volume {} page {}", names[static_cast<std::size_t>(step.verb)],
                             volume, page));
    }
    switch (step.verb) {
        case Verb::read: {
            std::array<std::uint8_t, page_words> words{};
            std::array<unsigned, page_words> numbers{};
            for (unsigned i = 0; i != page_words; ++i) {
                numbers[i] = begin({.kind = Kind::read, .volume = volume, .page = page, .word = i});
            }
            exports->read(volume, page, words);
            for (unsigned i = 0; i != page_words; ++i) end(numbers[i], words[i]);
            return;
        }
        case Verb::write: {
            const unsigned number = begin({.kind = Kind::write,
                                           .volume = volume,
                                           .page = page,
                                           .word = word,
                                           .value = value});
            exports->write(volume, page, word, value);
            return end(number, value);
        }
        case Verb::fill: {
            std::array<unsigned, page_words> numbers{};
            for (unsigned i = 0; i != page_words; ++i) {
                numbers[i] = begin({.kind = Kind::write,
                                    .volume = volume,
                                    .page = page,
                                    .word = i,
                                    .value = value});
            }
            exports->fill(volume, page, value);
            for (const unsigned number : numbers) end(number, value);
            return;
        }
        case Verb::unmap: {
            const unsigned number = begin({.kind = Kind::zero, .volume = volume, .page = page});
            exports->unmap(volume, page);
            return end(number, 0);
        }
        case Verb::clone: {
            const auto to = static_cast<std::uint8_t>(2 + fiber());
            const unsigned number = begin({.kind = Kind::clone, .volume = volume, .value = to});
            exports->clone(volume, to);
            return end(number, to);
        }
        case Verb::move:
        case Verb::cancel:
            return exports->move(volume, page, step.verb == Verb::move);
        case Verb::remove:
            return exports->remove(volume);
        case Verb::lose: {
            const unsigned number = begin({.kind = Kind::zero, .volume = volume, .page = page});
            exports->move(volume, page, false, true);
            exports->unmap(volume, page);  // it may not have moved
            return end(number, 0);
        }
    }
}

std::string check() {
    const arena::Use inside(true);
    const Contents last = exports->contents();
    const std::uint32_t left = exports->volumes();
    {
        const arena::Use outside(false);
        if (!history.is_explained(first, last, left)) {
            std::string out = "no order of the operations has these results:\n" + history.text();
            for (unsigned i = 0; i != max_volumes; ++i) {
                if ((left >> i & 1) == 0) continue;
                out += fmt::format("  volume {} has {} {}, {} {}\n", i, last[i][0][0],
                                   last[i][0][1], last[i][1][0], last[i][1][1]);
            }
            return out;
        }
    }
    return exports->check_and_end();
}

struct Options {
    Bound pairs{.preemptions = 3, .delays = 1};
    Bound triples{.preemptions = 1, .delays = 1};
    std::string only;
    bool verbose = false;
};

struct Totals {
    std::uint64_t scenarios = 0;
    std::uint64_t schedules = 0;
    std::uint64_t ended = 0;
};

// False: it has failed, which is printed.
bool explore_one(Start start, const std::string& name, const std::vector<const Script*>& together,
                 const Bound& bound, const Options& options, Totals& totals) {
    arena::clear();
    {
        const arena::Use inside(true);
        exports = new Exports(start);
    }
    first = exports->contents();
    arena::save();
    Scenario scenario;
    scenario.begin = [] {
        arena::restore();
        history.clear();
    };
    scenario.end = check;
    for (unsigned i = 0; i != together.size(); ++i) {
        scenario.fibers.emplace_back([script = together[i], i] {
            auto value = static_cast<std::uint8_t>(10 * (i + 1));
            for (const Step& step : script->steps) run(step, value++);
        });
    }
    const Explored explored = explore(scenario, bound);
    if (options.verbose) fmt::print("{:8} {:8} {}\n", explored.schedules, explored.ended, name);
    ++totals.scenarios;
    totals.schedules += explored.schedules;
    totals.ended += explored.ended;
    if (explored.failure.empty()) return true;
    fmt::print("{}: {}\n", name, explored.failure);
    fmt::print("the steps of fiber 0, 1 and 2:\n");
    explore(scenario, bound, &explored.decisions);
    fmt::print("again: interleaving_tests --preemptions={} --delays={} --only={}\n",
               bound.preemptions, bound.delays, name);
    return false;
}

using Combination = std::vector<const Script*>;

// Each selection of two or three scripts, with repetition, in the order of the list.
std::vector<Combination> combinations(std::size_t size) {
    std::vector<Combination> out;
    for (std::size_t i = 0; i != scripts.size(); ++i) {
        for (std::size_t j = i; j != scripts.size(); ++j) {
            const Combination pair = {&scripts[i], &scripts[j]};
            if (size == 2) out.push_back(pair);
            for (std::size_t k = j; size == 3 && k != scripts.size(); ++k) {
                out.push_back({pair[0], pair[1], &scripts[k]});
            }
        }
    }
    return out;
}

bool is_allowed(const StartName& start, const Combination& together) {
    for (std::size_t a = 0; a != together.size(); ++a) {
        if (uses_clone(*together[a]) && !start.has_clone) return false;
        for (std::size_t b = 0; b != a; ++b) {
            if (!may_meet(*together[a], *together[b])) return false;
        }
    }
    return together.size() == 2 || is_short(together);
}

Bound bound_of(const Combination& together, const Options& options) {
    if (together.size() != 2) return options.triples;
    Bound bound = options.pairs;
    if (together[0]->steps.size() + together[1]->steps.size() == 4) {
        --bound.preemptions;  // they take long
    }
    return bound;
}

std::string name_of(const char* start, const Combination& together) {
    std::string name = start;
    for (const Script* script : together) name += fmt::format(",{}", script->name);
    return name;
}

const Script* script_named(std::string_view name) {
    for (const std::vector<Script>* list : {&scripts, &scripts_of_chosen}) {
        const auto found = std::ranges::find(*list, name, &Script::name);
        if (found != list->end()) return &*found;
    }
    fail(fmt::format("there is no script '{}'", name));
}

bool run_all(const Options& options) {
    Totals totals;
    const auto begin = std::chrono::system_clock::now();
    const auto is_wanted = [&](const std::string& name) {
        return options.only.empty() || options.only == name;
    };
    for (const std::size_t size : {2, 3}) {
        const std::vector<Combination> all = combinations(size);
        for (const StartName& start : starts) {
            for (const Combination& together : all) {
                const std::string name = name_of(start.name, together);
                if (!is_allowed(start, together) || !is_wanted(name)) continue;
                const Bound bound = bound_of(together, options);
                if (!explore_one(start.start, name, together, bound, options, totals)) return false;
            }
        }
        const std::chrono::duration<double> took = std::chrono::system_clock::now() - begin;
        fmt::print(
            "{} scenarios with up to {} fibers, {} schedules, {} of them to their end, {:.1f} s\n",
            totals.scenarios, size, totals.schedules, totals.ended, took.count());
    }
    for (const Chosen& each : chosen) {
        Combination together;
        for (const char* script : each.scripts) together.push_back(script_named(script));
        const std::string name = name_of(each.name, together);
        if (!is_wanted(name)) continue;
        Bound bound = together.size() == 2 ? options.pairs : options.triples;
        if (together.size() != 2) ++bound.preemptions;
        if (!explore_one(each.start, name, together, bound, options, totals)) return false;
    }
    fmt::print("{} scenarios, {} schedules, {} of them to their end\n", totals.scenarios,
               totals.schedules, totals.ended);
    return true;
}

int main(int argc, char** argv) {
    Options options;
    for (int i = 1; i != argc; ++i) {
        const std::string_view argument = argv[i];
        const auto at = argument.find('=');
        const std::string_view key = argument.substr(0, at);
        const std::string value(at == argument.npos ? "" : argument.substr(at + 1));
        const auto number = static_cast<unsigned>(std::atoi(value.c_str()));
        if (key == "--preemptions") {
            options.pairs.preemptions = options.triples.preemptions = number;
        } else if (key == "--triples") {
            options.triples.preemptions = number;
        } else if (key == "--delays") {
            options.pairs.delays = options.triples.delays = number;
        } else if (key == "--only") {
            options.only = value;
        } else if (key == "--verbose") {
            options.verbose = true;
        } else {
            fmt::print(stderr,
                       "'{}' is none of --preemptions=N, --triples=N, --delays=N, --only=NAME, "
                       "--verbose\n",
                       argument);
            return 2;
        }
    }
    // A fault is a failure of the schedule.
    struct sigaction action {};
    action.sa_handler = [](int) { fail("a fault"); };
    action.sa_flags = SA_NODEFER | SA_ONSTACK;
    static std::byte stack[64 << 10];
    const stack_t alternative{.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
    ::sigaltstack(&alternative, nullptr);
    ::sigaction(SIGSEGV, &action, nullptr);
    return run_all(options) ? 0 : 1;
}

}  // namespace

}  // namespace gpunbd::interleaving

int main(int argc, char** argv) { return gpunbd::interleaving::main(argc, argv); }
