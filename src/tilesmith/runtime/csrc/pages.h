/* Pages of memory of which the system says whether they were written. */
#ifndef TILESMITH_PAGES_H
#define TILESMITH_PAGES_H

#include <stdint.h>

/* Where memory of the process may be watched, at one time. */
typedef struct tilesmith_survey Survey;

/* Pages that are watched.  All calls need Python's lock, which also guards what is behind them. */
typedef struct tilesmith_watch Watch;

/* The bytes of a page; 0 where the system can't say what was written, or isn't allowed to. */
uintptr_t tilesmith_page_bytes(void);

/* Whether the system still answers.  Ask before pages are asked for: not in the child of a fork, for instance. */
int tilesmith_pages_answer(void);

/* What memory may be watched now; NULL if none. */
Survey *tilesmith_survey(void);

void tilesmith_survey_free(Survey *survey);

/* Begin to watch the whole pages from `first` up to `end`, or begin afresh.  What they hold counts from then on: read
 * it after this call.  `since` gets what tells this beginning from others.
 *
 * NULL where they can't be watched: memory that is a file's, another process's or a device's, or too many ranges.
 * Each result is given back once. */
Watch *tilesmith_watch(const Survey *survey, uintptr_t first, uintptr_t end, uint64_t *since);

void tilesmith_unwatch(Watch *watch);

/* Whether these pages hold what they held since the beginning that `since` tells.  0 where that isn't known. */
int tilesmith_is_unwritten(const Watch *watch, uint64_t since);

#endif
