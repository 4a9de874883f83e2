// Random sequences of changes of exports, on one thread that turns the event loop, and a model of
// what must be true after each step:
//
//   contents  each export has the bytes that were written to it, also after an end of the server; a
//             restored one has those of the file, whatever had its name before; a clone has those
//             of one instant
//   partial   an export whose restore did not end is never served
//   open      clients can open all exports but those that are being restored
//   answer    what cannot fail is not refused, and what must be refused is
//   left over kept contents without an export are those that the model knows
//   memory    each page is counted once on its device, and slabs belong to volumes
//   claims    there is a limit while there are claims
#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>

#include "tests/server/control_plane/life.hpp"
#include "tests/server/control_plane/model.hpp"
#include "tests/server/control_plane/page_contents.hpp"

namespace gpunbd::server::test {
namespace {

using std::to_string;

class Violation : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

std::uint64_t variable(const char* name, std::uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// A change of exports and what the model expects of it.
struct Step {
    std::string text;
    std::function<void(const Completion&)> ask;
    std::function<void(Model&)> effect;  // if it is done
    std::optional<bool> must = {};       // be done, or be refused; unset: either
    std::set<std::string> touched = {};  // exports
};

class Sequence {
 public:
    explicit Sequence(std::uint64_t seed) : dice_(seed), seed_(seed) {
        std::string folder = "/dev/shm/gpunbd-model-XXXXXX";
        if (::access("/dev/shm", W_OK) != 0) folder = "/tmp/gpunbd-model-XXXXXX";
        if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder");
        folder_ = folder;
        disk::release();
        disk::set_folder(folder_ + "/image");
        keeps_ = chance(0.75);
        has_extra_ = chance(0.5);
        model_.exports["base"] = configured();
        if (has_extra_) model_.exports["extra"] = configured();
        model_.templates["node"] = "base";
        for (const char* name : {"one", "two"}) write_image(name);
    }
    ~Sequence() {
        disk::release();
        life_.reset();
        std::filesystem::remove_all(folder_);
    }
    Sequence(const Sequence&) = delete;
    Sequence& operator=(const Sequence&) = delete;

    void run(std::uint64_t steps) {
        write_config();
        start();
        check();
        for (std::uint64_t i = 0; i != steps; ++i) {
            random_step();
            check();
        }
        say("the end");
        remove_all();
        check();
    }
    std::string text() const {
        std::string all;
        for (const std::string& each : steps_) all += "\n    " + each;
        return all;
    }

 private:
    // --- dice

    bool chance(double probability) { return std::bernoulli_distribution(probability)(dice_); }
    std::uint64_t up_to(std::uint64_t most) {
        return std::uniform_int_distribution<std::uint64_t>(0, most)(dice_);
    }
    template <typename All>
    auto any_of(const All& all) {
        return *std::next(std::begin(all), static_cast<std::ptrdiff_t>(up_to(std::size(all) - 1)));
    }
    // The name of an export; empty: there is none.
    template <typename Wanted>
    std::string any_export(const Wanted& wanted) {
        std::vector<std::string> names;
        for (const auto& [name, each] : model_.exports) {
            if (!model_.closed.contains(name) && wanted(name, each)) names.push_back(name);
        }
        return names.empty() ? std::string() : any_of(names);
    }
    std::string any_export() {
        return any_export([](const auto&, const ModelExport&) { return true; });
    }
    std::string free_name() {
        std::vector<std::string> names;
        for (const char* name : {"a", "b", "c", "d", "extra"}) {
            const bool of_file = has_extra_ && std::string(name) == "extra";
            if (!model_.exports.contains(name) && !model_.closed.contains(name) && !of_file) {
                names.emplace_back(name);
            }
        }
        return names.empty() ? std::string() : any_of(names);
    }

    // --- the server

    ModelExport configured() const {
        return {.pages = ModelPages(16), .keep = keeps_, .configured_pages = 16};
    }
    std::string config_file() const { return folder_ + "/config.yaml"; }
    void write_config() const {
        std::ofstream file(config_file());
        const std::string keys =
            std::string(", size: 1M, page_size: 64K, devices: [host], keep: ") +
            (keeps_ ? "true" : "false") + "}\n";
        file << "threads: 1\npipeline: {chunk_size: 64K, pinned: 1M}\nkeeping: {grace: 3600}\n";
        if (!keeps_) {
            file << "devices: [{id: host, spill: [{file: '" << folder_
                 << "/spill', size: 16M}]}]\n";
        }
        file << "exports:\n  - {name: base" << keys
             << "  - {name: node, clone_per_client: {of: base, name: machine, max: 40}}\n";
        if (has_extra_) file << "  - {name: extra" << keys;
    }
    void start() { life_ = std::make_unique<Life>(keeper_, config_file()); }
    void say(const std::string& text) {
        steps_.push_back(text);
        if (std::getenv("MODEL_VERBOSE") != nullptr) std::fprintf(stderr, "  %s\n", text.c_str());
    }
    ModelPage new_page() {
        ++pages_;
        return {.contents = (seed_ << 20) + pages_, .id = pages_};
    }
    // The same contents in other memory.
    ModelPages copies(const ModelPages& pages) {
        ModelPages all = pages;
        for (ModelPage& each : all) {
            if (each.contents != 0) each.id = ++pages_;
        }
        return all;
    }

    // --- data

    void write_image(const std::string& name) {
        const std::string path = folder_ + "/image-" + name;
        ModelPages pages(chance(0.3) ? 32 : 16);
        for (ModelPage& each : pages) {
            if (chance(0.4)) each = new_page();
        }
        any_page(pages) = new_page();
        std::ofstream file(path, std::ios::binary);
        std::vector<std::byte> bytes(model_page);
        for (std::size_t i = 0; i != pages.size(); ++i) {
            if (pages[i].contents == 0) continue;
            fill_page(bytes, pages[i].contents);
            file.seekp(static_cast<std::streamoff>(i * model_page));
            file.write(reinterpret_cast<const char*>(bytes.data()),
                       static_cast<std::streamsize>(bytes.size()));
        }
        file.close();
        std::filesystem::resize_file(path, pages.size() * model_page);
        files_[path] = pages;
    }
    ModelPage& any_page(ModelPages& pages) { return pages[up_to(pages.size() - 1)]; }

    // The first page that differs; unset: there is none.
    static std::optional<std::uint64_t> difference(const Export& served, const ModelExport& model) {
        const std::vector<std::uint64_t> pages = read_pages(*served.volume);
        for (std::uint64_t i = 0; i != model.pages.size(); ++i) {
            if (i >= pages.size() || pages[i] != model.pages[i].contents) return i;
        }
        return std::nullopt;
    }
    static bool equals(const Export& served, const ModelExport& model) {
        return served.info.size == model.pages.size() * model_page && !difference(served, model);
    }

    // --- the rules

    [[noreturn]] static void violated(const std::string& text) { throw Violation(text); }

    std::shared_ptr<const Export> served(const std::string& name) const {
        return life_->context.exports.find(name);
    }
    static bool can_open(const Export& exported) {
        return exported.use->enter("someone").lease != nullptr;
    }

    void check() {
        for (const auto& [name, candidates] : model_.doubt) decide(name, candidates);
        model_.doubt.clear();
        std::set<std::string> there;
        for (const auto& each : *life_->context.exports.snapshot()) there.insert(each->info.name);
        for (const auto& [name, each] : model_.exports) {
            if (!there.contains(name) && !model_.closed.contains(name)) violated(name + " is lost");
        }
        for (const std::string& name : there) {
            if (model_.closed.contains(name)) {
                if (can_open(*served(name)))
                    violated("a client opens " + name + ", which is closed");
                continue;
            }
            const auto found = model_.exports.find(name);
            if (found == model_.exports.end()) violated("there is an export " + name);
            check(*served(name), found->second);
        }
        if (!model_.closed.empty()) return;
        check_kept();
        check_claims();
        check_memory();
    }
    void check(const Export& exported, const ModelExport& model) const {
        const std::string& name = exported.info.name;
        if (!can_open(exported)) violated(name + " is closed");
        if (!exported.volume->complete()) violated(name + " is incomplete, and open");
        if (exported.info.size != model.pages.size() * model_page) {
            violated(name + " has " + to_string(exported.info.size / model_page) + " pages, not " +
                     to_string(model.pages.size()));
        }
        if (const auto page = difference(exported, model)) {
            violated("page " + to_string(*page) + " of " + name + " is not " +
                     to_string(model.pages[*page].contents & 0xfffff));
        }
    }
    void decide(const std::string& name, const Candidates& candidates) {
        const auto exported = served(name);
        model_.exports.erase(name);
        for (const auto& each : candidates) {
            if (each ? exported && equals(*exported, *each) : !exported) {
                if (each) model_.exports[name] = *each;
                return;
            }
        }
        violated(name + (exported ? " has neither the contents before nor those after the change"
                                  : " is lost"));
    }
    // With the tables that the keeper has.
    void check_kept() {
        std::multiset<std::string> used;
        std::set<std::string> left;
        for (const auto& each : life_->context.retained.contents->summaries()) {
            each.state == "in use" || each.state == "being restored" ? void(used.insert(each.name))
                                                                     : void(left.insert(each.name));
        }
        std::multiset<std::string> wanted;
        for (const auto& [name, each] : model_.exports) {
            if (each.keep) wanted.insert(name);
        }
        if (used != wanted)
            violated("contents in use: " + list(used) + " instead of " + list(wanted));
        for (const auto& [name, candidates] : model_.unsure) {
            model_.grace.erase(name);
            if (left.contains(name)) model_.grace[name] = candidates;
        }
        model_.unsure.clear();
        std::set<std::string> grace;
        for (const auto& [name, each] : model_.grace) grace.insert(name);
        if (left != grace) {
            violated("contents without an export: " + list(left) + " instead of " + list(grace));
        }
        std::uint64_t tables = 0;
        std::uint64_t options = 0;
        for (const std::string& each : keeper_.names()) {
            tables += each.find("/table") != std::string::npos ? 1 : 0;
            options += each.find("/export/") != std::string::npos ? 1 : 0;
        }
        if (tables < used.size() + left.size() || (left.empty() && tables != used.size())) {
            violated("the keeper has " + to_string(tables) + " tables");
        }
        std::uint64_t run_time = 0;
        for (const auto& [name, each] : model_.exports) {
            run_time += each.run_time && (each.keep || !each.is_clone) ? 1 : 0;
        }
        if (options != run_time + model_.templates.size() - 1) {
            violated("the keeper has the options of " + to_string(options) + " exports");
        }
    }
    template <typename Names>
    static std::string list(const Names& names) {
        std::string all;
        for (const std::string& each : names) all += (all.empty() ? "" : " ") + each;
        return "{" + all + "}";
    }
    void check_claims() {
        DeviceStatus status{.id = "host"};
        life_->reclaim->add_to(status);
        std::set<std::uint64_t> claims;
        for (const ClaimStatus& each : status.claims) claims.insert(each.id);
        if (claims != model_.claims) {
            violated("there are " + to_string(claims.size()) + " claims instead of " +
                     to_string(model_.claims.size()));
        }
        if (claims.empty() && status.limit) violated("there is a limit without a claim");
    }
    void check_memory() {
        life_->context.disposal.wait();
        std::set<std::uint64_t> pages;
        const auto count = [&](const ModelExport& each) {
            for (const ModelPage& page : each.pages) {
                if (page.contents != 0) pages.insert(page.id);
            }
        };
        for (const auto& [name, each] : model_.exports) count(each);
        for (const auto& [name, candidates] : model_.grace) {
            if (candidates.size() != 1 || !candidates.front()) return;
            count(*candidates.front());
        }
        std::uint64_t mapped = 0;
        std::uint64_t allocated = 0;
        std::uint64_t budget = 0;
        life_->run_until([&] {
            mapped = allocated = 0;
            std::set<const storage::PagePool*> pools;
            std::set<storage::SlabBudget*> budgets;
            for (const auto& volume : life_->context.disposal.volumes()) {
                for (std::uint32_t i = 0; i != volume->pools(); ++i) {
                    storage::PagePool& pool = volume->pool(i);
                    if (!pools.insert(&pool).second) continue;
                    mapped += pool.mapped_bytes();
                    if (i < volume->layout_devices()) allocated += pool.allocated_bytes();
                }
            }
            budget = life_->context.devices.open("host").budget().used();
            return ++looks_ % 2000 == 0 ||
                   (mapped == pages.size() * model_page && budget == allocated);
        });
        if (mapped != pages.size() * model_page) {
            violated("exports use " + to_string(mapped / model_page) + " pages instead of " +
                     to_string(pages.size()));
        }
        if (budget != allocated) {
            violated("the device counts " + to_string(budget) + " bytes instead of " +
                     to_string(allocated));
        }
    }

    // --- making a step

    static std::string outcome_text(const Outcome& outcome) {
        const auto* const refusal = std::get_if<NotDone>(&outcome);
        return refusal == nullptr ? "done" : refusal->why;
    }
    // The outcome of a change, from any thread. A server that is dead answers nothing.
    class Answer {
     public:
        explicit Answer(const Keeper& keeper) : keeper_(keeper) {}
        void set(Outcome outcome) {
            const std::lock_guard lock(mutex_);
            if (!keeper_.is_dead()) outcome_ = std::move(outcome);
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
        const Keeper& keeper_;
        mutable std::mutex mutex_;
        std::optional<Outcome> outcome_;
    };
    struct Asked {
        Step step;
        std::shared_ptr<Answer> outcome;
    };
    Asked ask(Step step) {
        say(step.text);
        Asked asked{.step = std::move(step), .outcome = std::make_shared<Answer>(keeper_)};
        asked.step.ask(
            Completion([outcome = asked.outcome](Outcome its) { outcome->set(std::move(its)); }));
        return asked;
    }
    bool answered(const Asked& asked) {
        const Outcome outcome = asked.outcome->value();
        const bool done = !std::holds_alternative<NotDone>(outcome);
        if (!done) say("... " + outcome_text(outcome));
        const auto& must = asked.step.must;
        if (must && *must != done && !disk::has_failed()) {
            violated(std::string(done ? "done, but must be refused: " : "refused: ") +
                     outcome_text(outcome));
        }
        if (done) asked.step.effect(model_);
        return done;
    }
    void make(Step step) {
        if (keeps_ && model_.closed.empty() && chance(0.05)) return make_and_kill(std::move(step));
        const Asked asked = ask(std::move(step));
        life_->run_until([&] { return asked.outcome->has_value(); });
        life_->settle();
        answered(asked);
    }
    // The server dies during the step.
    void make_and_kill(Step step) {
        const std::uint64_t message = up_to(8);
        step.text += ", killed at message " + to_string(message);
        keeper_.kill_at(message);
        const Asked asked = ask(std::move(step));
        life_->run_until([&] { return keeper_.is_dead() || asked.outcome->has_value(); });
        if (!keeper_.is_dead()) life_->settle();
        keeper_.kill_no_more();
        if (!keeper_.is_dead()) return void(answered(asked));
        // A change that was answered before is in effect.
        const bool was_answered = asked.outcome->has_value();
        if (was_answered) answered(asked);
        Model after = model_;
        if (!was_answered) asked.step.effect(after);
        life_.reset();
        Model before = at_restart(model_);
        after = at_restart(after);
        std::set<std::string> names;
        for (const auto& [name, each] : before.exports) names.insert(name);
        for (const auto& [name, each] : after.exports) names.insert(name);
        for (const Model* each : {&before, &after}) {
            for (const auto& [name, unused] : each->grace) names.insert(name);
        }
        const auto of = [](const Model& model,
                           const std::string& name) -> std::optional<ModelExport> {
            const auto found = model.exports.find(name);
            return found == model.exports.end() ? std::nullopt : std::optional(found->second);
        };
        start();
        model_ = before;
        for (const std::string& name : names) {
            if (!asked.step.touched.contains(name)) continue;
            add_doubt(name, {of(before, name), of(after, name)});
            const auto doubt = after.doubt.find(name);
            if (doubt != after.doubt.end()) add_doubt(name, doubt->second);
            Candidates left;
            for (const auto& each : {of(before, name), of(after, name)}) {
                if (each && each->keep) left.push_back(each);
            }
            for (const Model* each : {&before, &after}) {
                const auto found = each->grace.find(name);
                if (found == each->grace.end()) continue;
                left.insert(left.end(), found->second.begin(), found->second.end());
            }
            if (!left.empty()) model_.unsure[name] = left;
        }
        model_.templates =
            after.templates.size() > before.templates.size() &&
                    life_->context.exports.templates()->size() == after.templates.size()
                ? after.templates
                : before.templates;
    }
    void add_doubt(const std::string& name, const Candidates& candidates) {
        Candidates& all = model_.doubt[name];
        all.insert(all.end(), candidates.begin(), candidates.end());
    }

    // --- ends of the server

    // New contents of the export, as a server makes them that has none.
    ModelExport remade(const ModelExport& its) {
        ModelExport again = its;
        const auto file = files_.find(its.restored_from);
        again.pages = file == files_.end() ? ModelPages() : copies(file->second);
        again.pages.resize(its.configured_pages);
        return again;
    }
    Model at_restart(const Model& before) {
        Model next = before;
        next.claims.clear();
        next.closed.clear();
        for (const auto& [name, each] : before.exports) {
            if (each.keep) continue;
            if (each.is_clone) {
                next.exports.erase(name);
                continue;
            }
            next.exports[name] = remade(each);
        }
        return next;
    }
    void kill() {
        say("kill");
        keeper_.kill();
        life_.reset();
        model_ = at_restart(model_);
        start();
    }
    void terminate() {
        say("terminate");
        life_->terminate();
        life_.reset();
        model_ = at_restart(model_);
        start();
    }
    void upgrade() {
        if (!keeps_) return;
        say("upgrade");
        std::unique_ptr<Life> next;
        const std::string why = life_->upgrade(keeper_, config_file(), next);
        if (!why.empty()) violated("the upgrade fails: " + why);
        life_ = std::move(next);
        life_->settle();
        model_ = at_restart(model_);
    }

    // --- steps

    config::ExportOptions keys(const std::string& name, bool keep) const {
        config::ExportOptions options;
        options.name = name;
        options.page_size = model_page;
        options.devices = {"host"};
        options.keep = keep;
        return options;
    }
    std::function<void(const Completion&)> changing(ExportChange change) {
        return [this, change = std::move(change)](const Completion& completion) {
            life_->run_time_exports->change(change, completion);
        };
    }
    // An export that is added again may get its contents back.
    static void may_return(Model& model, const std::string& name) {
        const auto found = model.grace.find(name);
        if (found == model.grace.end()) return;
        const ModelExport added = model.exports.at(name);
        Candidates& doubt = model.doubt[name];
        doubt.push_back(added);
        for (const auto& each : found->second) {
            if (!each) continue;
            ModelExport again = added;
            again.pages = each->pages;
            doubt.push_back(again);
        }
        model.unsure[name] = found->second;
    }
    // A new export that must not have them.
    static void forget(Model& model, const std::string& name) { model.grace.erase(name); }

    std::optional<Step> create() {
        const std::string name = free_name();
        if (name.empty()) return std::nullopt;
        const bool keep = keeps_ && chance(0.7);
        const std::uint64_t count = chance(0.3) ? 32 : 16;
        config::ExportOptions options = keys(name, keep);
        options.size = config::Size{.bytes = count * model_page};
        return Step{.text = "create " + name + " of " + to_string(count) + " pages" +
                            (keep ? ", kept" : ""),
                    .ask = changing(CreateExport{.options = options}),
                    .effect =
                        [=](Model& model) {
                            model.exports[name] = {.pages = ModelPages(count),
                                                   .keep = keep,
                                                   .run_time = true,
                                                   .configured_pages = count};
                            may_return(model, name);
                        },
                    .must = model_.grace.contains(name) ? std::nullopt : std::optional(true),
                    .touched = {name}};
    }
    std::optional<Step> remove() {
        const std::string name =
            any_export([](const std::string& its, const auto&) { return its != "base"; });
        if (name.empty()) return std::nullopt;
        return removal(name, chance(0.3));
    }
    Step removal(const std::string& name, bool keep_contents) {
        const ModelExport& its = model_.exports[name];
        bool possible = its.run_time && (!keep_contents || its.keep);
        for (const auto& [unused, source] : model_.templates) possible &= source != name;
        return Step{.text = "remove " + name + (keep_contents ? ", keep its contents" : ""),
                    .ask = changing(RemoveExport{.name = name, .keep_contents = keep_contents}),
                    .effect =
                        [=](Model& model) {
                            if (keep_contents) {
                                model.grace[name].push_back(model.exports.at(name));
                            }
                            model.exports.erase(name);
                        },
                    .must = possible,
                    .touched = {name}};
    }
    std::optional<Step> clone() {
        const std::string source = any_export();
        return clone_of(source, free_name());
    }
    std::optional<Step> clone_of(const std::string& source, const std::string& name) {
        if (source.empty() || name.empty()) return std::nullopt;
        config::ExportOptions options;
        options.name = name;
        options.clone_of = source;
        options.read_only = chance(0.5);
        return Step{.text = (options.read_only ? "snapshot " : "clone ") + source + " " + name,
                    .ask = changing(CreateExport{.options = options}),
                    .effect =
                        [=](Model& model) {
                            ModelExport made = model.exports.at(source);
                            made.read_only = options.read_only;
                            made.run_time = made.is_clone = true;
                            made.restored_from.clear();
                            made.configured_pages = made.pages.size();
                            model.exports[name] = made;
                            forget(model, name);
                        },
                    .must = true,
                    .touched = {name}};
    }
    std::optional<Step> add_template() {
        const std::string source = any_export([](const auto&, const ModelExport& each) {
            return each.run_time && !each.is_clone && !each.read_only;
        });
        const std::string name = "t" + source;
        if (source.empty() || model_.templates.contains(name)) return std::nullopt;
        config::ExportOptions options;
        options.name = name;
        options.clone_per_client.of = source;
        options.clone_per_client.name = config::ClientId::machine;
        return Step{.text = "template " + name,
                    .ask = changing(CreateExport{.options = options}),
                    .effect = [=](Model& model) { model.templates[name] = source; },
                    .must = true};
    }
    std::optional<Step> client_clone() {
        const auto [its_template, source] = any_of(model_.templates);
        return client_clone_of(its_template, source);
    }
    std::optional<Step> client_clone_of(const std::string& its_template,
                                        const std::string& source) {
        const std::string client = "m" + to_string(up_to(2));
        const std::string name = its_template + "/" + client;
        if (model_.exports.contains(name)) return std::nullopt;
        return Step{
            .text = "client clone " + name,
            .ask =
                [=, this](const Completion& completion) {
                    life_->context.exports.clone_requests().send(
                        {.template_name = its_template,
                         .client = client,
                         .peer = "someone",
                         .answer = [completion](const std::string& why) {
                             completion(why.empty() ? Outcome(Done{}) : Outcome(NotDone{why}));
                         }});
                },
            .effect =
                [=](Model& model) {
                    ModelExport made = model.exports.at(source);
                    made.run_time = made.is_clone = true;
                    made.read_only = false;
                    made.restored_from.clear();
                    made.configured_pages = made.pages.size();
                    model.exports[name] = made;
                    forget(model, name);
                },
            .must = true,
            .touched = {name}};
    }
    std::optional<Step> resize() {
        const std::string name = any_export();
        const ModelExport& its = model_.exports[name];
        std::uint64_t count = std::max<std::uint64_t>(10, its.pages.size() + up_to(16)) - 8;
        if (chance(0.2)) count = its.configured_pages;
        const bool discard = chance(0.5);
        const bool is_snapshot = its.is_clone && its.read_only;
        const bool loses = std::any_of(
            its.pages.begin() +
                static_cast<std::ptrdiff_t>(std::min<std::size_t>(count, its.pages.size())),
            its.pages.end(), [](const ModelPage& each) { return each.contents != 0; });
        return Step{.text = "resize " + name + " to " + to_string(count) + " pages",
                    .ask = changing(
                        ResizeExport{.name = name, .size = count * model_page, .discard = discard}),
                    .effect = [=](Model& model) { model.exports.at(name).resize(count); },
                    .must = !is_snapshot && (discard || !loses),
                    .touched = {name}};
    }
    std::optional<Step> save() {
        const std::string name = any_export();
        const bool zstd = chance(0.5);
        const std::string path =
            folder_ + "/image-" + (chance(0.5) ? "x" : "y") + (zstd ? ".zst" : "");
        const bool fails = chance(0.3);
        const std::uint64_t call = up_to(4);
        if (fails) disk::fail(disk::Call::write, call);
        return Step{.text = "save " + name + " to " + path.substr(folder_.size()) +
                            (fails ? ", write " + to_string(call) + " fails" : ""),
                    .ask = changing(SaveExport{.name = name, .file = path, .zstd = zstd}),
                    .effect =
                        [=, this, pages = model_.exports[name].pages](Model&) {
                            if (fails && disk::has_failed()) violated("a save that failed is done");
                            files_[path] = pages;
                        },
                    .must = true};
    }
    // Into a new export, or into an empty one.
    std::optional<Step> restore() {
        const auto [path, pages] = any_of(files_);
        std::string name = any_export([&](const auto&, const ModelExport& each) {
            return each.used() == 0 && each.pages.size() >= pages.size() && !each.is_clone;
        });
        const std::string fresh = free_name();
        const bool exists = !name.empty() && (fresh.empty() || chance(0.5));
        if (!exists) name = fresh;
        if (name.empty()) return std::nullopt;
        return restore_of(path, name, exists, keeps_ && chance(0.7));
    }
    Step restore_of(const std::string& path, const std::string& name, bool exists, bool keep) {
        config::ExportOptions options;
        if (exists) {
            options.name = name;
        } else {
            options = keys(name, keep);
        }
        return Step{.text = "restore " + path.substr(folder_.size()) + " to " +
                            (exists ? "" : "new ") + name + (keep && !exists ? ", kept" : ""),
                    .ask = changing(RestoreExport{
                        .file = path, .create = {.options = options}, .only_name = exists}),
                    .effect =
                        [=, this, pages = files_[path]](Model& model) {
                            const std::uint64_t count =
                                exists ? model.exports.at(name).pages.size() : pages.size();
                            if (!exists) {
                                model.exports[name] = {.keep = keep,
                                                       .run_time = true,
                                                       .restored_from = path,
                                                       .configured_pages = count};
                            }
                            model.exports.at(name).pages = copies(pages);
                            model.exports.at(name).pages.resize(count);
                            if (!exists) forget(model, name);
                        },
                    .must = true,
                    .touched = {name}};
    }
    void restore_that_fails() {
        const auto step = restore();
        if (!step) return;
        const std::uint64_t call = up_to(6);
        disk::fail(disk::Call::read, call);
        say("read " + to_string(call) + " fails");
        const std::string name = *step->touched.begin();
        Step its = *step;
        its.must = std::nullopt;
        const Asked asked = ask(std::move(its));
        life_->run_until([&] { return asked.outcome->has_value(); });
        life_->settle();
        disk::release();
        answered(asked);
    }

    // In the middle of a restore.
    void held_restore() {
        const auto [path, pages] = any_of(files_);
        const std::optional<Step> step = restore();
        if (!step) return;
        const std::string name = *step->touched.begin();
        const bool exists = model_.exports.contains(name);
        disk::hold(up_to(8));
        Step its = *step;
        its.must = std::nullopt;
        const Asked asked = ask(std::move(its));
        life_->run_until([&] { return disk::is_holding() || asked.outcome->has_value(); });
        life_->settle();
        if (!disk::is_holding()) {
            disk::release();
            if (!asked.outcome->has_value()) {
                life_->run_until([&] { return asked.outcome->has_value(); });
            }
            return void(answered(asked));
        }
        say("... held");
        model_.closed.insert(name);
        const std::optional<ModelExport> before =
            exists ? std::optional(model_.exports[name]) : std::nullopt;
        std::vector<Asked> late;
        for (std::uint64_t i = up_to(3); i != 0; --i) meanwhile(name, late);
        switch (up_to(4)) {
            case 0:
            case 1:
                say("... goes on");
                disk::release();
                break;
            case 2:
                say("... fails");
                disk::release(EIO);
                break;
            case 3:
                return end_meanwhile(name, asked, before, true);
            default:
                return end_meanwhile(name, asked, before, false);
        }
        life_->run_until([&] { return asked.outcome->has_value(); });
        for (const Asked& each : late) {
            life_->run_until([&] { return each.outcome->has_value(); });
        }
        life_->settle();
        model_.closed.erase(name);
        answered(asked);
        for (const Asked& each : late) answered(each);
    }
    // Changes of the export, or of others, while it is being restored.
    void meanwhile(const std::string& name, std::vector<Asked>& late) {
        std::optional<Step> step;
        const std::uint64_t kind = up_to(6);
        const bool is_served = served(name) != nullptr;
        if (kind == 0 && is_served) {
            step = Step{.text = "... remove " + name,
                        .ask = changing(RemoveExport{.name = name}),
                        .effect = [](Model&) {},
                        .must = false};
        } else if (kind == 1 && is_served) {
            const std::string clone = free_name();
            if (clone.empty()) return;
            step = clone_of(name, clone);
            step->must = false;
        } else if (kind == 2 && is_served) {
            step = Step{.text = "... resize " + name,
                        .ask = changing(ResizeExport{.name = name, .size = 64 * model_page}),
                        .effect = [](Model&) {},
                        .must = false};
        } else if (kind == 3) {
            step = create();
        } else if (kind == 4) {
            step = clone();
        } else if (kind == 5) {
            reload();
            return check();
        } else {
            step = remove();
        }
        if (!step) return;
        const Asked asked = ask(*std::move(step));
        life_->settle();
        if (asked.outcome->has_value()) {
            answered(asked);
        } else {
            late.push_back(asked);
        }
        check();
    }
    // The server ends while an export is being restored.
    void end_meanwhile(const std::string& name, const Asked& asked,
                       const std::optional<ModelExport>& before, bool killed) {
        say(killed ? "... kill" : "... terminate");
        Model complete = model_;
        if (before) complete.exports[name] = *before;
        asked.step.effect(complete);
        complete = at_restart(complete);
        if (killed) {
            keeper_.kill();
            disk::release();
        } else {
            life_->terminate();
        }
        life_.reset();
        model_ = at_restart(model_);
        model_.exports.erase(name);
        Candidates& candidates = model_.doubt[name];
        if (before) {
            candidates.emplace_back(remade(*before));
            if (!killed) candidates.emplace_back(complete.exports[name]);
        } else {
            candidates.emplace_back(std::nullopt);
        }
        start();
    }
    void reload() {
        if (model_.exports.contains("extra") && model_.exports["extra"].run_time) return;
        if (model_.closed.contains("extra")) return;
        has_extra_ = !has_extra_;
        say(has_extra_ ? "reload with extra" : "reload without extra");
        write_config();
        life_->exports->reload_file();
        life_->settle();
        if (has_extra_ && !served("extra") && model_.grace.contains("extra")) {
            say("... its kept contents were made for other options");
            has_extra_ = false;
            write_config();
            life_->exports->reload_file();
            life_->settle();
        } else if (has_extra_) {
            model_.exports["extra"] = configured();
            may_return(model_, "extra");
        } else {
            const ModelExport old = model_.exports["extra"];
            model_.exports.erase("extra");
            if (old.keep) model_.grace["extra"].push_back(old);
        }
    }
    std::optional<Step> drop() {
        const std::string name = model_.grace.empty() ? "base" : any_of(model_.grace).first;
        return Step{.text = "drop " + name,
                    .ask =
                        [=, this](const Completion& completion) {
                            life_->queries->answer({.drop = name, .completion = completion});
                        },
                    .effect = [=](Model& model) { model.grace.erase(name); },
                    .must = model_.grace.contains(name),
                    .touched = {name}};
    }
    // Beyond the grace period.
    void pass_time() {
        if (!keeps_) return;
        say("the grace period passes");
        std::vector<RetainedContents::Offered> offered;
        const auto exports = life_->context.exports.snapshot();
        for (const auto& each : *exports) {
            offered.push_back({each->info.name, each->options.keep, each->volume});
        }
        life_->context.retained.contents->settle(
            offered, std::chrono::seconds(3600),
            RetainedContents::Clock::now() + std::chrono::hours(2));
        model_.grace.clear();
    }
    void reclaim() {
        if (keeps_) return;
        const std::uint64_t count = any_of(std::vector<std::uint64_t>{4, 16, 128});
        const bool timed = chance(0.3);
        say("reclaim " + to_string(count) + " pages" + (timed ? " for no time" : ""));
        const auto answer = std::make_shared<Answer>(keeper_);
        ReclaimRequest request{.bytes = count * model_page};
        if (timed) request.duration = std::chrono::seconds(0);
        life_->reclaim->reclaim(
            request, Completion([answer](Outcome its) { answer->set(std::move(its)); }));
        life_->run_until([&] { return answer->has_value(); });
        const Outcome outcome = answer->value();
        const auto* const reclaimed = std::get_if<Reclaimed>(&outcome);
        if (reclaimed == nullptr) violated("reclaim is refused: " + outcome_text(outcome));
        const auto claim = reclaimed->devices.at(0).claim;
        if (!timed && claim) model_.claims.insert(*claim);
        if (!timed || !claim) return;
        life_->run_until([&] {
            DeviceStatus status{.id = "host"};
            life_->reclaim->add_to(status);
            return std::ranges::none_of(status.claims,
                                        [&](const ClaimStatus& each) { return each.id == *claim; });
        });
        life_->run_until([&] {
            DeviceStatus status{.id = "host"};
            life_->reclaim->add_to(status);
            return !status.claims.empty() || !status.limit;
        });
    }
    std::optional<Step> end_reclaim() {
        if (keeps_) return std::nullopt;
        const auto claim = model_.claims.empty() || chance(0.5)
                               ? std::nullopt
                               : std::optional(any_of(model_.claims));
        return Step{.text = "end of " + (claim ? "claim " + to_string(*claim) : "all claims"),
                    .ask =
                        [=, this](const Completion& completion) {
                            life_->reclaim->end({.claim = claim}, completion);
                        },
                    .effect =
                        [=](Model& model) {
                            claim ? void(model.claims.erase(*claim)) : model.claims.clear();
                        },
                    .must = true};
    }
    void write() {
        const std::string name =
            any_export([](const auto&, const ModelExport& each) { return !each.read_only; });
        if (name.empty()) return;
        ModelExport& its = model_.exports[name];
        storage::Volume& volume = *served(name)->volume;
        for (std::uint64_t i = up_to(5) + 1; i != 0; --i) {
            const std::uint64_t number = up_to(its.pages.size() - 1);
            if (chance(0.3)) {
                volume.unmap(number);
                its.pages[number] = {};
                continue;
            }
            const ModelPage written = new_page();
            if (!write_page(volume, number, written.contents)) continue;  // beyond the limit
            its.pages[number] = written;
        }
        say("write " + name);
    }
    void make_any(std::optional<Step> step) {
        if (step) make(*std::move(step));
        disk::release();
    }

    void random_step() {
        struct Kind {
            unsigned weight;
            std::function<void()> make;
        };
        const Kind kinds[] = {{5, [&] { make_any(create()); }},
                              {12, [&] { write(); }},
                              {6, [&] { make_any(clone()); }},
                              {2, [&] { make_any(add_template()); }},
                              {3, [&] { make_any(client_clone()); }},
                              {4, [&] { make_any(resize()); }},
                              {6, [&] { make_any(remove()); }},
                              {3, [&] { make_any(save()); }},
                              {4, [&] { make_any(restore()); }},
                              {3, [&] { restore_that_fails(); }},
                              {8, [&] { held_restore(); }},
                              {3, [&] { kill(); }},
                              {2, [&] { upgrade(); }},
                              {1, [&] { terminate(); }},
                              {4, [&] { reload(); }},
                              {1, [&] { make_any(drop()); }},
                              {1, [&] { pass_time(); }},
                              {3, [&] { reclaim(); }},
                              {2, [&] { make_any(end_reclaim()); }}};
        unsigned all = 0;
        for (const Kind& each : kinds) all += each.weight;
        std::uint64_t at = up_to(all - 1);
        for (const Kind& each : kinds) {
            if (at < each.weight) return each.make();
            at -= each.weight;
        }
    }
    // Nothing is left over.
    void remove_all() {
        while (model_.templates.size() > 1) {
            const std::string name = std::prev(model_.templates.end())->first == "node"
                                         ? model_.templates.begin()->first
                                         : std::prev(model_.templates.end())->first;
            make_now({.text = "remove " + name,
                      .ask = changing(RemoveExport{.name = name}),
                      .effect = [=](Model& model) { model.templates.erase(name); },
                      .must = true});
        }
        const Model all = model_;
        for (const auto& [name, each] : all.exports) {
            if (each.run_time) make_now(removal(name, false));
        }
    }
    void make_now(Step step) {
        const Asked asked = ask(std::move(step));
        life_->run_until([&] { return asked.outcome->has_value(); });
        life_->settle();
        answered(asked);
    }

    std::mt19937_64 dice_;
    const std::uint64_t seed_;
    std::string folder_;
    bool keeps_ = false;
    bool has_extra_ = false;
    Model model_;
    std::map<std::string, ModelPages> files_;  // by path
    std::uint64_t pages_ = 0;
    std::uint64_t looks_ = 0;
    std::vector<std::string> steps_;
    Keeper keeper_;
    std::unique_ptr<Life> life_;
};

std::string refusal_of(const std::optional<Outcome>& outcome) {
    REQUIRE(outcome);
    const auto* const refusal = std::get_if<NotDone>(&*outcome);
    return refusal == nullptr ? "" : refusal->why;
}

// A server of the configuration, with a file to restore.
struct Small {
    Small() {
        std::filesystem::create_directory(folder);
        std::ofstream(folder + "/config.yaml")
            << "threads: 1\nexports: [{name: base, size: 1M, page_size: 64K, devices: [host], "
               "keep: true}]\n";
        std::ofstream(folder + "/image") << std::string(model_page, 'x');
        disk::release();
        disk::set_folder(folder);
        life = std::make_unique<Life>(keeper, folder + "/config.yaml");
    }
    ~Small() {
        disk::release();
        life.reset();
        std::filesystem::remove_all(folder);
    }
    std::shared_ptr<std::optional<Outcome>> change(const ExportChange& change) {
        const auto outcome = std::make_shared<std::optional<Outcome>>();
        life->run_time_exports->change(
            change, Completion([outcome](Outcome its) { *outcome = std::move(its); }));
        return outcome;
    }
    static config::ExportOptions keys(const std::string& name) {
        config::ExportOptions options;
        options.name = name;
        options.size = config::Size{.bytes = 16 * model_page};
        options.page_size = model_page;
        options.devices = {"host"};
        options.keep = true;
        return options;
    }
    RestoreExport restore_to(const std::string& name) const {
        return {.file = folder + "/image", .create = {.options = keys(name)}, .only_name = false};
    }

    const std::string folder = "/tmp/gpunbd-small-" + to_string(::getpid());
    Keeper keeper;
    std::unique_ptr<Life> life;
};

TEST_CASE("control plane: a failed restore is withdrawn later if it cannot be at once") {
    Small server;
    disk::hold(0);
    const auto restore = server.change(server.restore_to("new"));
    server.life->run_until([] { return disk::is_holding(); });
    server.life->context.lifecycle.phase = Phase::handing_over;
    disk::release(EIO);
    server.life->run_until([&] { return restore->has_value(); });
    CHECK(refusal_of(*restore).find(std::strerror(EIO)) != std::string::npos);
    const auto served = [&] { return server.life->context.exports.find("new"); };
    REQUIRE(served());
    CHECK(served()->use->enter("someone").lease == nullptr);
    server.life->context.lifecycle.phase = Phase::serving;
    SUBCASE("by the next change") { server.change(CreateExport{.options = Small::keys("other")}); }
    SUBCASE("when the hand-over has failed") { server.life->exports->resume(); }
    server.life->settle();
    CHECK_FALSE(served());
    const auto again = server.change(server.restore_to("new"));
    server.life->run_until([&] { return again->has_value(); });
    CHECK(refusal_of(*again) == "");
}

TEST_CASE("control plane: a restore that fails leaves the kept contents of its name") {
    Small server;
    const auto make = [&](const ExportChange& change) {
        const auto outcome = server.change(change);
        server.life->run_until([&] { return outcome->has_value(); });
        server.life->settle();
        return refusal_of(*outcome);
    };
    CHECK(make(CreateExport{.options = Small::keys("old")}) == "");
    const std::string instance = server.life->context.exports.find("old")->info.instance;
    CHECK(make(RemoveExport{.name = "old", .keep_contents = true}) == "");
    disk::fail(disk::Call::read, 0);
    CHECK(make(server.restore_to("old")) != "");
    disk::release();
    CHECK(make(CreateExport{.options = Small::keys("old")}) == "");
    CHECK(server.life->context.exports.find("old")->info.instance == instance);
    CHECK(make(RemoveExport{.name = "old", .keep_contents = true}) == "");
    CHECK(make(server.restore_to("old")) == "");
    CHECK(server.life->context.retained.contents->summaries().size() == 2);  // base and the new
}

TEST_CASE("control plane: random sequences of changes, and a model") {
    const bool one = std::getenv("MODEL_SEED") != nullptr;
    const std::uint64_t first = variable("MODEL_SEED", variable("MODEL_FIRST", 0));
    const std::uint64_t count = one ? 1 : variable("MODEL_SEQUENCES", 500);
    for (std::uint64_t seed = first; seed != first + count; ++seed) {
        Sequence sequence(seed);
        try {
            sequence.run(variable("MODEL_STEPS", 15));
        } catch (const std::exception& error) {
            FAIL_CHECK("seed " << seed << ": " << std::string(error.what())
                               << "; repeat it by MODEL_SEED=" << seed << sequence.text());
        }
    }
}

}  // namespace
}  // namespace gpunbd::server::test
