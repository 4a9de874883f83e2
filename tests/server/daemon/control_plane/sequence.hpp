// A random sequence of changes of exports on one server after the other, and of ends of the server.
// After each step, the server is compared with a model:
//
//   contents   each export has the bytes that were written to it, also after an end of the server;
//              a restored one has those of the file, whatever had its name before; a clone has
//              those of one instant
//   partial    an export is never served before its restore is complete
//   open       clients can open every export, except during its restore
//   answer     what cannot fail is not refused, and what must be refused is
//   left over  the model has all kept contents without an export
//   memory     each page is counted once on its device, and slabs belong to volumes
//   claims     there is a limit while there are claims
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/daemon/control_plane/in_process_server.hpp"
#include "tests/server/daemon/control_plane/in_process_supervisor.hpp"
#include "tests/server/daemon/control_plane/model.hpp"

namespace gpunbd::server::test {

class Violation : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

// The outcome of a change, from any thread. A server that is dead answers nothing.
class Answer {
 public:
    explicit Answer(const InProcessSupervisor& supervisor) : supervisor_(supervisor) {}
    void set(Outcome outcome) {
        const std::lock_guard lock(mutex_);
        if (!supervisor_.is_dead()) outcome_ = std::move(outcome);
    }
    bool has_value() const {
        const std::lock_guard lock(mutex_);
        return outcome_.has_value();
    }
    Outcome value() const {
        const std::lock_guard lock(mutex_);
        return outcome_.value();
    }

 private:
    const InProcessSupervisor& supervisor_;
    mutable std::mutex mutex_;
    std::optional<Outcome> outcome_;
};

// A change of exports and what the model expects of it.
struct Step {
    std::string text;
    std::function<void(const Completion&)> begin;
    std::function<void(Model&)> effect;      // if it is done
    std::optional<bool> expected_done = {};  // false: refused; unset: either
    std::string name = {};                   // of the export; empty: it changes none
    // After the end of a server that was killed before it answered. Empty: `effect` may have
    // happened.
    std::function<void()> interrupted = {};
};

class Sequence {
 public:
    explicit Sequence(std::uint64_t seed, bool prints);
    ~Sequence();
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;

    // Throws Violation.
    void run(std::uint64_t steps);
    std::string steps_text() const;

 private:
    struct Submitted {
        Step step;
        std::shared_ptr<Answer> answer;
    };

    // --- random choices
    bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
    std::uint64_t up_to(std::uint64_t most) {
        return std::uniform_int_distribution<std::uint64_t>(0, most)(random_);
    }
    template <typename All>
    auto any_of(const All& all) {
        return *std::next(std::begin(all), static_cast<std::ptrdiff_t>(up_to(std::size(all) - 1)));
    }
    // The name of an export that is open; empty: there is none.
    using Wanted = std::function<bool(const std::string&, const ModelExport&)>;
    std::string any_export(const Wanted& wanted = {});
    // `of_kept`: there are kept contents of that name.
    std::string free_name(bool of_kept = false);

    // --- the server and its files
    ModelExport configured() const;
    std::string config_file() const { return folder_ + "/config.yaml"; }
    void write_config() const;
    void write_image(const std::string& name);
    void start();
    std::shared_ptr<const Export> served(const std::string& name) const;
    ModelPage new_page();
    // The same contents in other memory.
    ModelPages copies(const ModelPages& pages);

    // --- steps
    void log(const std::string& text);
    Submitted submit(Step step);
    void wait_for(const Submitted& submitted);
    // Applies the effect of the step. Throws if the answer is not the expected one.
    void apply_answer(const Submitted& submitted);
    void make(Step step);
    void make_or_kill(std::optional<Step> step);
    void random_step();
    void remove_all();

    // --- changes (sequence_changes.cpp). Unset: not possible now.
    std::function<void(const Completion&)> changing(ExportRequest request);
    static config::ExportOptions options_of(const std::string& name, bool keep);
    std::optional<Step> create();
    std::optional<Step> remove();
    Step removal(const std::string& name, bool keep_contents);
    std::optional<Step> clone();
    std::optional<Step> clone_of(const std::string& source, const std::string& name);
    void clone_during_writes();
    std::optional<Step> add_template();
    std::optional<Step> client_clone();
    std::optional<Step> client_clone_of(const std::string& its_template, const std::string& source);
    // Of an export as clone, in memory that it shares.
    static ModelExport cloned(const ModelExport& source, bool read_only);
    std::optional<Step> resize();
    std::optional<Step> save();
    std::optional<Step> restore();
    Step restore_of(const std::string& path, const std::string& name, bool exists, bool keep);
    std::optional<Step> drop();
    std::optional<Step> end_reclaim();
    void reclaim();
    void write();
    void pass_grace_period();

    // --- changes that are interrupted, and ends of the server (sequence_ends.cpp)
    void restore_with_read_error();
    void restore_that_stops();
    void meanwhile(const std::string& name, std::vector<Submitted>& unanswered);
    void end_during_restore(const Submitted& restore, const std::optional<ModelExport>& before,
                            bool killed);
    void make_and_kill(Step step);
    void kill();
    void terminate();
    void upgrade();
    void reload();
    // New contents, which a server makes that has none.
    ModelExport remade(const ModelExport& its);
    Model at_restart(const Model& before);

    // --- the rules (sequence_rules.cpp)
    void check();
    void check(const Export& exported, const ModelExport& model) const;
    void decide(const std::string& name, const Candidates& candidates);
    void check_kept();
    void check_supervisor(std::size_t used, std::size_t unused) const;
    void check_claims() const;
    void check_memory();

    std::mt19937_64 random_;
    const std::uint64_t seed_;
    const bool prints_;
    std::string folder_;
    bool keeps_ = false;
    bool has_extra_ = false;  // an export of the configuration that a reload adds and removes
    Model model_;
    std::map<std::string, ModelPages> files_;  // images by path
    std::uint64_t pages_ = 0;                  // that had contents
    std::uint64_t extra_pages_ = 0;            // that clones may have, see clone_during_writes()
    std::vector<std::string> steps_;
    InProcessSupervisor supervisor_;
    std::unique_ptr<InProcessServer> server_;
};

}  // namespace gpunbd::server::test
