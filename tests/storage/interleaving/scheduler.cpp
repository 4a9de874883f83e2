#include "tests/storage/interleaving/scheduler.hpp"

#include <fmt/format.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "tests/storage/interleaving/arena.hpp"

namespace gpunbd::interleaving {

namespace {

constexpr unsigned max_fibers = 4;
constexpr unsigned none = max_fibers;
constexpr unsigned max_pending = 64;
constexpr unsigned max_mutexes = 64;
constexpr unsigned max_steps = 4000;    // of a schedule; more is a livelock
constexpr unsigned repeated_loads = 9;  // of an unchanged value: the fiber waits for a change
constexpr std::size_t stack_bytes = 256 << 10;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ (b * 0x9e3779b97f4a7c15)) + 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

std::uint64_t word(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

struct Pending {
    void* at = nullptr;
    unsigned bytes = 0;
    std::uint64_t value = 0;
    bool adds = false;
    bool is_seq_cst = false;
    bool releases = false;
    bool is_delayed = false;  // some fiber has not seen it
};

struct Fiber {
    enum class Status : std::uint8_t { ready, locking, waiting, retrying, finished };

    // --- of the process
    jmp_buf entry;    // where each schedule starts
    jmp_buf context;  // where it goes on
    bool exists = false;
    ucontext_t first;
    std::array<std::byte, stack_bytes> stack;
    // --- of the schedule
    bool started = false;
    Status status = Status::ready;
    const void* waits_for = nullptr;  // a mutex or a condition
    const Mutex* relocks = nullptr;   // after the condition
    unsigned held = 0;                // mutexes
    std::uint64_t history = 0;        // a hash of all that it has observed
    std::array<Pending, max_pending> pending;
    unsigned pending_count = 0;
    std::uint64_t loaded = 0;  // what it loaded last, and how often
    unsigned loads = 0;
};

struct MutexState {
    const Mutex* mutex = nullptr;
    unsigned owner = none;
    std::uint64_t history = 0;  // of its last owner: what the mutex guards depends on it
};

struct Decision {
    std::uint8_t choice = 0;
    std::uint8_t options = 0;
};

enum class Outcome : std::uint8_t { running, ended, known, failed };

struct Explorer {
    std::array<Fiber, max_fibers> fibers;
    const Scenario* scenario = nullptr;
    bool running = false;  // a fiber runs
    unsigned current = none;
    std::array<MutexState, max_mutexes> mutexes;
    unsigned mutex_count = 0;
    std::uint64_t memory = 0;  // a hash of all changes
    std::uint64_t notes = 0;
    unsigned steps = 0;
    Bound left;
    jmp_buf end;
    Outcome outcome = Outcome::running;
    std::string failure;
    bool prints = false;
    std::unordered_map<std::uint64_t, std::size_t> numbers;

    std::vector<Decision> decisions;
    std::size_t position = 0;
    // By location: a bit for each fiber that has used it in any schedule. Switching to another
    // fiber before a use by the only one makes no difference.
    std::unordered_map<std::uint64_t, unsigned> users;
    bool has_new_users = false;
    // By state: bits of the bounds with which it was reached.
    std::unordered_map<std::uint64_t, std::uint64_t> known;
};

Explorer x;

Fiber& self() { return x.fibers[x.current]; }
unsigned count() { return static_cast<unsigned>(x.scenario->fibers.size()); }

[[noreturn]] void leave(Outcome outcome) {
    x.outcome = outcome;
    x.running = false;
    arena::use(false);
    _longjmp(x.end, 1);
}

template <typename... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
    if (!x.prints) return;
    const arena::Use outside(false);
    fmt::print("{:{}}{}: {}\n", "", x.current * 4, x.current,
               fmt::format(format, std::forward<Args>(args)...));
}

// Names of locations and mutexes in the order of their first use.
std::string shown(const void* at) {
    if (!x.prints) return {};
    const arena::Use outside(false);
    return fmt::format("#{}", x.numbers.emplace(word(at), x.numbers.size() + 1).first->second);
}

// An entry of a page table has its state in the highest byte: see PageEntry.
std::string shown(std::uint64_t value) {
    if (!x.prints) return {};
    const arena::Use outside(false);
    constexpr std::array states = {"hole", "mapped", "retired", "moving", "", "shared"};
    const std::uint64_t state = value >> 56;
    if (state == 0 || state >= states.size()) return fmt::format("{:x}", value);
    return fmt::format("{} page {} of pool {}", states[state], value & 0xffffffff,
                       value >> 32 & 0xffff);
}

// --- decisions -----------------------------------------------------------------------------------

std::uint64_t state() {
    std::uint64_t out = mix(mix(x.memory, x.notes), x.current);
    for (unsigned i = 0; i != count(); ++i) {
        const Fiber& fiber = x.fibers[i];
        out = mix(mix(out, fiber.history), static_cast<std::uint64_t>(fiber.status));
        for (unsigned j = 0; j != fiber.pending_count; ++j) {
            const Pending& each = fiber.pending[j];
            out = mix(mix(mix(out, word(each.at)), each.value), each.is_delayed ? 1 : 0);
        }
        out = mix(out, fiber.pending_count);
    }
    std::uint64_t mutexes = 0;
    for (unsigned i = 0; i != x.mutex_count; ++i) {
        const MutexState& each = x.mutexes[i];
        mutexes ^= mix(mix(word(each.mutex), each.history), each.owner);
    }
    return mix(out, mutexes);
}

// Whether the state was reached before, with no less left of the bounds.
bool is_known(std::uint64_t kind) {
    const arena::Use outside(false);
    std::uint64_t& reached = x.known[mix(state(), kind)];
    constexpr unsigned most = 7;
    const unsigned preemptions = std::min(x.left.preemptions, most);
    const unsigned delays = std::min(x.left.delays, most);
    for (unsigned i = preemptions; i <= most; ++i) {
        for (unsigned j = delays; j <= most; ++j) {
            if (reached >> (i * 8 + j) & 1) return true;
        }
    }
    reached |= std::uint64_t{1} << (preemptions * 8 + delays);
    return false;
}

// `kind` tells apart decisions in the same state.
unsigned decide(unsigned options, std::uint64_t kind) {
    if (options == 1) return 0;
    if (x.position == x.decisions.size()) {
        if (is_known(kind)) leave(Outcome::known);
        const arena::Use outside(false);
        x.decisions.push_back({0, static_cast<std::uint8_t>(options)});
    }
    Decision& decision = x.decisions[x.position++];
    if (decision.options == 0) decision.options = static_cast<std::uint8_t>(options);  // a replay
    if (decision.choice >= options || decision.options != options) {
        fail("the scenario is not deterministic");
    }
    return decision.choice;
}

// --- fibers --------------------------------------------------------------------------------------

MutexState& state_of(const Mutex& mutex) {
    for (unsigned i = 0; i != x.mutex_count; ++i) {
        if (x.mutexes[i].mutex == &mutex) return x.mutexes[i];
    }
    if (x.mutex_count == max_mutexes) std::abort();
    x.mutexes[x.mutex_count] = {.mutex = &mutex};
    return x.mutexes[x.mutex_count++];
}

bool is_enabled(const Fiber& fiber) {
    switch (fiber.status) {
        case Fiber::Status::ready:
            return true;
        case Fiber::Status::locking:
            return state_of(*static_cast<const Mutex*>(fiber.waits_for)).owner == none;
        default:
            return false;
    }
}

void flush_all(unsigned of);
[[noreturn]] void go_to(unsigned next);

void run_fiber() {
    if (_setjmp(self().entry) == 0) _longjmp(x.end, 1);  // it exists now
    // Each schedule starts here.
    arena::use(true);
    x.scenario->fibers[x.current]();
    arena::use(false);
    flush_all(x.current);
    self().status = Fiber::Status::finished;
    unsigned options = 0;
    std::array<unsigned, max_fibers> enabled{};
    for (unsigned i = 0; i != count(); ++i) {
        if (is_enabled(x.fibers[i])) enabled[options++] = i;
    }
    if (options != 0) go_to(enabled[decide(options, 1)]);
    for (unsigned i = 0; i != count(); ++i) {
        if (x.fibers[i].status != Fiber::Status::finished) {
            fail(fmt::format("fiber {} waits for ever", i));
        }
    }
    leave(Outcome::ended);
}

void make_fiber(unsigned number) {
    Fiber& fiber = x.fibers[number];
    if (fiber.exists) return;
    fiber.exists = true;
    fiber.started = false;
    x.current = number;
    ::getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = fiber.stack.data();
    fiber.first.uc_stack.ss_size = fiber.stack.size();
    fiber.first.uc_link = nullptr;
    ::makecontext(&fiber.first, run_fiber, 0);
    if (_setjmp(x.end) == 0) ::setcontext(&fiber.first);
}

[[noreturn]] void go_to(unsigned next) {
    x.current = next;
    Fiber& fiber = self();
    if (fiber.started) _longjmp(fiber.context, 1);
    fiber.started = true;
    _longjmp(fiber.entry, 1);
}

void switch_to(unsigned next) {
    if (next == x.current) return;
    const bool used_arena = arena::use(true);
    if (_setjmp(self().context) == 0) go_to(next);
    arena::use(used_arena);
}

// Whether another fiber uses the location or the mutex.
bool is_shared(const void* at) {
    const arena::Use outside(false);
    unsigned& users = x.users[word(at)];
    const unsigned before = users;
    users |= 1U << x.current;
    const bool is = (users & (users - 1)) != 0;
    if (is && users != before) x.has_new_users = true;
    return is;
}

// The next step is that of the current fiber, or of another one. `is_free`: not a preemption.
void step(bool is_free = false) {
    if (++x.steps > max_steps) fail("a schedule does not end");
    std::array<unsigned, max_fibers> enabled{};
    unsigned options = 0;
    const bool goes_on = is_enabled(self());
    if (goes_on) enabled[options++] = x.current;
    const bool preempts = goes_on && !is_free;
    if (!preempts || x.left.preemptions != 0) {
        for (unsigned i = 0; i != count(); ++i) {
            if (i != x.current && is_enabled(x.fibers[i])) enabled[options++] = i;
        }
    }
    if (options == 0) fail("all fibers wait");
    const unsigned next = enabled[decide(options, 2)];
    if (next == x.current) return;
    if (preempts) --x.left.preemptions;
    switch_to(next);
}

void observe(std::uint64_t what) { self().history = mix(self().history, what); }

// --- memory --------------------------------------------------------------------------------------

std::uint64_t value_at(const void* at, unsigned bytes) {
    std::uint64_t out = 0;
    std::memcpy(&out, at, bytes);
    return out;
}

std::uint64_t changed(std::uint64_t value, const Pending& by) {
    const std::uint64_t out = by.adds ? value + by.value : by.value;
    return by.bytes == 8 ? out : out & ((std::uint64_t{1} << by.bytes * 8) - 1);
}

void apply(const Pending& change, unsigned of) {
    const std::uint64_t before = value_at(change.at, change.bytes);
    const std::uint64_t after = changed(before, change);
    std::memcpy(change.at, &after, change.bytes);
    if (before == after) return;
    x.memory ^= mix(word(change.at), before) ^ mix(word(change.at), after);
    for (unsigned i = 0; i != count(); ++i) {
        if (i != of && x.fibers[i].status == Fiber::Status::retrying) {
            x.fibers[i].status = Fiber::Status::ready;
        }
    }
}

// Makes a pending change visible, and those that precede it in memory order.
void flush(unsigned of, unsigned index) {
    Fiber& fiber = x.fibers[of];
    const void* const at = fiber.pending[index].at;
    // All up to a release of the location, if there is one.
    unsigned all = 0;
    for (unsigned i = 0; i <= index; ++i) {
        if (fiber.pending[i].at == at && fiber.pending[i].releases) all = i + 1;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i != fiber.pending_count; ++i) {
        const Pending each = fiber.pending[i];
        if (i < all || (i <= index && each.at == at)) {
            apply(each, of);
        } else {
            fiber.pending[kept++] = each;
        }
    }
    fiber.pending_count = kept;
}

void flush_all(unsigned of) {
    Fiber& fiber = x.fibers[of];
    for (unsigned i = 0; i != fiber.pending_count; ++i) apply(fiber.pending[i], of);
    fiber.pending_count = 0;
}

// A sequentially consistent access comes after earlier ones of the fiber.
void order(std::memory_order order) {
    if (order != std::memory_order_seq_cst) return;
    for (unsigned i = self().pending_count; i != 0; --i) {
        if (self().pending[i - 1].is_seq_cst) return flush(x.current, i - 1);
    }
}

// The index of the first change of the location that is pending.
unsigned first_pending(const Fiber& fiber, const void* at) {
    unsigned i = 0;
    while (i != fiber.pending_count && fiber.pending[i].at != at) ++i;
    return i;
}

// Decides which pending changes of other fibers the current one sees.
void look(const void* at) {
    for (unsigned i = 0; i != count(); ++i) {
        if (i == x.current) continue;
        Fiber& fiber = x.fibers[i];
        while (true) {
            const unsigned index = first_pending(fiber, at);
            if (index == fiber.pending_count) break;
            Pending& change = fiber.pending[index];
            const bool may_wait = change.is_delayed || x.left.delays != 0;
            if (may_wait && decide(2, mix(word(at), i)) == 1) {
                if (!change.is_delayed) --x.left.delays;
                change.is_delayed = true;
                print("does not see the change of {} by {}", shown(at), i);
                break;
            }
            flush(i, index);
        }
    }
}

void push(Pending change) {
    Fiber& fiber = self();
    if (fiber.pending_count == max_pending) flush_all(x.current);
    fiber.pending[fiber.pending_count++] = change;
    fiber.loads = 0;
    observe(mix(word(change.at), change.value));
}

Pending change_of(void* at, unsigned bytes, std::uint64_t value, bool adds,
                  std::memory_order order) {
    const bool is_seq_cst = order == std::memory_order_seq_cst;
    return {.at = at,
            .bytes = bytes,
            .value = value,
            .adds = adds,
            .is_seq_cst = is_seq_cst,
            .releases = is_seq_cst || order == std::memory_order_release ||
                        order == std::memory_order_acq_rel};
}

std::uint64_t own_value(const void* at, unsigned bytes) {
    std::uint64_t out = value_at(at, bytes);
    for (unsigned i = 0; i != self().pending_count; ++i) {
        if (self().pending[i].at == at) out = changed(out, self().pending[i]);
    }
    return out;
}

}  // namespace

std::uint64_t load(const void* at, unsigned bytes, std::memory_order memory_order) {
    if (!x.running) return value_at(at, bytes);
    if (is_shared(at)) step();
    order(memory_order);
    look(at);
    const std::uint64_t value = own_value(at, bytes);
    observe(mix(word(at), value));
    print("load {}: {}", shown(at), shown(value));
    Fiber& fiber = self();
    const std::uint64_t loaded = mix(word(at), value);
    fiber.loads = loaded == fiber.loaded ? fiber.loads + 1 : 1;
    fiber.loaded = loaded;
    if (fiber.loads >= repeated_loads && fiber.held == 0) {
        fiber.loads = 0;
        yield(true);
    }
    return value;
}

void store(void* at, unsigned bytes, std::uint64_t value, std::memory_order memory_order) {
    if (!x.running) return static_cast<void>(std::memcpy(at, &value, bytes));
    if (is_shared(at)) step();
    order(memory_order);
    push(change_of(at, bytes, value, false, memory_order));
    print("store {}: {}", shown(at), shown(value));
}

// The result is checked by assertions only, so it is no part of the history.
std::uint64_t add(void* at, unsigned bytes, std::uint64_t value, std::memory_order memory_order) {
    if (!x.running) {
        const std::uint64_t before = value_at(at, bytes);
        const std::uint64_t after = before + value;
        std::memcpy(at, &after, bytes);
        return before;
    }
    if (is_shared(at)) step();
    order(memory_order);
    const std::uint64_t before = own_value(at, bytes);
    push(change_of(at, bytes, value, true, memory_order));
    print("add {}: {:x} + {:x}", shown(at), before, value);
    return before;
}

void lock(const Mutex& mutex) {
    if (!x.running) return;
    Fiber& fiber = self();
    fiber.status = Fiber::Status::locking;
    fiber.waits_for = &mutex;
    if (is_shared(&mutex)) step();
    fiber.status = Fiber::Status::ready;
    MutexState& its = state_of(mutex);
    if (its.owner != none) fail("a mutex has two owners");
    its.owner = x.current;
    ++fiber.held;
    observe(mix(word(&mutex), its.history));
    print("lock {}", shown(&mutex));
}

void unlock(const Mutex& mutex) {
    if (!x.running) return;
    if (is_shared(&mutex)) step();
    flush_all(x.current);
    MutexState& its = state_of(mutex);
    if (its.owner != x.current) fail("a fiber releases a mutex that it does not hold");
    its.owner = none;
    --self().held;
    observe(word(&mutex));
    its.history = self().history;
    print("unlock {}", shown(&mutex));
}

void wait(const void* condition, const Mutex& mutex) {
    if (!x.running) return fail("a wait outside of the fibers");
    unlock(mutex);
    Fiber& fiber = self();
    fiber.status = Fiber::Status::waiting;
    fiber.waits_for = condition;
    fiber.relocks = &mutex;
    print("wait {}", shown(condition));
    step();
    fiber.status = Fiber::Status::ready;
    lock(mutex);
}

void notify(const void* condition) {
    if (!x.running) return;
    for (unsigned i = 0; i != count(); ++i) {
        Fiber& fiber = x.fibers[i];
        const bool waits = fiber.status == Fiber::Status::waiting && fiber.waits_for == condition;
        if (waits) {
            fiber.status = Fiber::Status::locking;
            fiber.waits_for = fiber.relocks;
        } else if (i != x.current && fiber.status == Fiber::Status::retrying) {
            fiber.status = Fiber::Status::ready;
        }
    }
}

void yield(bool retries) {
    if (!x.running) return;
    if (retries) self().status = Fiber::Status::retrying;
    print("{}", retries ? "waits for a change" : "sleeps");
    observe(1);
    step(true);
}

void pause() {
    if (!x.running) return;
    step();
    observe(2);
}

// What a fiber has announced is seen by all.
void note(std::uint64_t event) {
    flush_all(x.current);
    x.notes = mix(x.notes, event);
}

void log_step(const std::string& text) { print("{}", text); }
bool logs_steps() { return x.prints; }

unsigned fiber() { return x.current; }

void fail(const std::string& why) {
    arena::use(false);
    x.failure = why;
    leave(Outcome::failed);
}

namespace {

void begin_schedule(const Bound& bound) {
    x.running = false;
    x.current = none;
    x.mutex_count = 0;
    x.memory = x.notes = 0;
    x.steps = 0;
    x.left = bound;
    x.outcome = Outcome::running;
    x.position = 0;
    for (unsigned i = 0; i != count(); ++i) {
        Fiber& fiber = x.fibers[i];
        fiber.started = false;
        fiber.status = Fiber::Status::ready;
        fiber.held = fiber.pending_count = fiber.loads = 0;
        fiber.history = fiber.loaded = 0;
    }
}

void run_schedule() {
    if (_setjmp(x.end) != 0) return;
    x.running = true;
    go_to(decide(count(), 0));
}

void end_schedule() {
    if (x.outcome != Outcome::ended || _setjmp(x.end) != 0) return;
    const std::string why = x.scenario->end();
    if (!why.empty()) fail(why);
}

// False: there is no other schedule.
bool next_schedule() {
    auto& all = x.decisions;
    while (!all.empty() && all.back().choice + 1 == all.back().options) all.pop_back();
    if (all.empty()) return false;
    ++all.back().choice;
    return true;
}

}  // namespace

Explored explore(const Scenario& scenario, const Bound& bound,
                 const std::vector<std::uint8_t>* only) {
    static Explored out;  // not a local variable: see setjmp()
    out = {};
    x.scenario = &scenario;
    x.decisions.clear();
    x.known.clear();
    x.prints = only != nullptr;
    x.numbers.clear();
    for (unsigned i = 0; i != count(); ++i) make_fiber(i);
    if (only != nullptr) {
        for (const std::uint8_t choice : *only) x.decisions.push_back({choice, 0});
    } else {
        x.users.clear();
    }
    while (true) {
        begin_schedule(bound);
        scenario.begin();
        run_schedule();
        end_schedule();
        ++out.schedules;
        if (x.outcome == Outcome::ended) ++out.ended;
        if (x.outcome == Outcome::failed) {
            out.failure = x.failure;
            for (const Decision& each : x.decisions) out.decisions.push_back(each.choice);
            break;
        }
        if (only != nullptr) break;
        if (std::exchange(x.has_new_users, false)) {
            // Start again: switches before earlier uses were left out.
            x.decisions.clear();
            x.known.clear();
        } else if (!next_schedule()) {
            break;
        }
    }
    return out;
}

}  // namespace gpunbd::interleaving
