"""What the forums talk about: each has things, deeds, troubles, advice and names of its own."""

from __future__ import annotations

from dataclasses import dataclass

from oneiro_web.sites.dice import listed


@dataclass(frozen=True)
class Topic:
    """The words of one forum. A line of them is split at `|`."""

    name: str
    title: str
    thing: str
    things: str
    did: str
    problem: str
    tip: str
    brand: str

    def words(self) -> dict[str, list[str]]:
        """The vocabulary for its posts."""
        kinds = ("thing", "things", "did", "problem", "tip", "brand")
        return {kind: [word.strip() for word in listed(getattr(self, kind), "|")] for kind in kinds}


TOPICS = (
    Topic("books", "Books and reading", "novel|short story collection|audiobook|library card|second-hand hardback",
          "debut novels|long series|unreliable narrators|audiobooks|book clubs",
          "read fifty books in a year|finished a 900-page classic|started a book club at work|sorted my shelves by "
          "colour",
          "I keep abandoning books halfway through|my e-reader loses its place|I cannot remember the plot a week later",
          "ask your library for an inter-library loan|keep a one-line reading journal|give every book fifty pages",
          "The Salt Orchard|A Map of Quiet Rooms|Nine Bells for Winter|The Glass Ferryman|Letters to a Lighthouse"),
    Topic("gardening", "Gardening for all climates", "raised bed|compost bin|tomato variety|greenhouse|rain barrel",
          "native perennials|heirloom tomatoes|drip hoses|ground covers|wildflower lawns",
          "grew tomatoes on a north-facing balcony|replaced my lawn with clover|built a cold frame from old windows",
          "slugs eat every seedling overnight|my hydrangeas refuse to bloom|the leaves of my lemon tree turn yellow",
          "mulch before the first hot week|water in the morning, not at night|rotate beds every year",
          "GreenMarrow soil|the Fernhill trowel|SproutBox trays|Oldacre seeds|the Dewline sprinkler"),
    Topic("cooking", "Home cooking", "cast-iron pan|weeknight dinner|chef's knife|soup recipe|pressure cooker",
          "one-pot meals|fermented vegetables|cheap cuts|spice blends|sheet-pan dinners",
          "cooked every meal at home for a month|made fresh pasta without a machine|learned five mother sauces",
          "my rice is always sticky|the garlic burns before the onions are done|my sourdough collapses in the oven",
          "salt in layers, not at the end|dry the meat before searing|taste before you serve",
          "the Brackwater skillet|Hearthline knives|Saffron & Rye|the Tolliver blender|Kettlemoor stock"),
    Topic("cycling", "Bicycles, commuting and touring", "commuter bike|rear derailleur|pannier|helmet|gravel tyre",
          "dynamo lights|e-bikes|steel frames|bike lanes|tubeless tyres",
          "commuted by bike through a whole winter|rode 300 km in a weekend|rebuilt a 1980s touring frame",
          "my chain skips under load|the left pedal clicks|my hands go numb after an hour",
          "check your saddle height first|carry a spare inner tube|ride two abreast where it is legal",
          "the Halden Tourer|Pavewell tyres|the Ridgeway 3|Lumen Forge lights|Corvane saddles"),
    Topic("technology", "News and talk about technology", "password manager|smart speaker|router|open standard|battery",
          "foldable phones|passkeys|small language models|repairable laptops|smart meters",
          "moved my family off cloud photos|repaired a laptop that was declared dead|blocked ads for the whole house",
          "my phone forgets its Wi-Fi every morning|two-factor codes arrive an hour late|the update removed a setting",
          "back up before every update|read the privacy label|turn off features you never use",
          "the Orrery 5 phone|Northgate router|Pebblework OS|the Lattice tablet|Quillpad"),
    Topic("personalfinance", "Budgets, saving and debt",
    "emergency fund|index fund|car loan|savings account|budget app",
          "credit cards|subscription traps|pension plans|side jobs|fixed mortgages",
          "paid off my student loan|saved six months of expenses|cut my grocery bill by a third",
          "rent eats half of my pay|my bank charges a fee for everything|we disagree about a shared account",
          "automate the transfer on payday|call and ask for the fee to be waived|write down every purchase for a month",
          "Tallywell|Harbor Mutual|the Pennyfield app|Oakline Credit Union|Brightledger"),
    Topic("diy", "Do it yourself", "bookshelf|workbench|cordless drill|kitchen backsplash|garden gate",
          "pocket-hole joints|reclaimed boards|wall anchors|milk paint|hand planes",
          "built a standing desk from old doors|tiled a bathroom in a weekend|insulated the attic myself",
          "the shelf sags in the middle|my drill bit wanders|the paint peels after one winter",
          "pre-drill hardwood|measure from the same end every time|rent the tool before you buy it",
          "the Grafton drill|Stoutbeam screws|Tannery Lane stain|the Millbrook clamp|Ironsedge blades"),
    Topic("running", "Running, from couch to marathon",
    "training plan|running shoe|half marathon|heart-rate watch|hill session",
          "tempo runs|trail shoes|rest days|energy gels|group runs",
          "ran my first half marathon|came back after a broken ankle|ran every day for 100 days",
          "my shins hurt after twenty minutes|I always start too fast|I get stitches on every long run",
          "slow down on easy days|replace shoes after 700 km|sleep more than you think you need",
          "the Fleetmoor 2|Aspen Loop socks|the Strider Vale|Kestrel gels|the Harbour Half"),
    Topic("movies", "Films new and old", "director's cut|film soundtrack|plot twist|opening scene|documentary",
          "black-and-white thrillers|slow films|practical effects|remakes|midnight screenings",
          "watched one film a day for a month|organised an outdoor cinema for the street|saw the restored print",
          "dialogue is too quiet at home|every trailer gives away the ending|nobody wants to watch subtitles with me",
          "turn off motion smoothing|go in without seeing the trailer|sit two thirds back from the screen",
          "The Cartographer's Debt|Low Tide at Marrow Bay|Paper Comets|The Last Switchboard|Eleven Lanterns"),
    Topic("space", "Spaceflight and astronomy", "telescope|meteor shower|launch window|star chart|lunar lander",
          "small satellites|exoplanets|reusable boosters|dark-sky parks|space telescopes",
          "photographed the Orion nebula from a balcony|watched a launch from the beach|ground my own mirror",
          "my mount drifts after ten minutes|light pollution hides everything|the eyepiece fogs up",
          "let the telescope cool down outside|learn the sky with binoculars first|use a red lamp",
          "the Heliad probe|Meridian Reach|the Stargazer 130|Perihelion One|the Auriga lander"),
    Topic("photography", "Cameras, light and pictures", "prime lens|tripod|film camera|photo printer|camera bag",
          "street portraits|wide-angle lenses|golden-hour shots|film simulations|contact sheets",
          "shot a wedding with one lens|developed my first roll of film|took one picture every day for a year",
          "my pictures look flat|the autofocus hunts in low light|clients ask for raw files",
          "get closer, then closer again|expose for the highlights|print your best ten every year",
          "the Aperta 40|Silverhalide Lab|the Monopole bag|Vantor glass|the Clarion flash"),
    Topic("boardgames", "Games on tables", "deck builder|solo mode|card sleeve|game insert|rulebook",
          "co-operative games|legacy campaigns|two-player games|party games|wooden pieces",
          "finished a campaign after fourteen sessions|taught my parents a heavy game|painted 80 miniatures",
          "one friend needs ten minutes for each turn|we never finish before midnight|the rulebook contradicts itself",
          "teach the goal before the rules|play the first round open-handed|set a timer and be kind about it",
          "Harbours of Veyl|Moss & Mortar|The Clockwork Abbey|Lantern Draft|Caravan of Kings"),
    Topic("parenting", "Raising children, staying sane",
    "bedtime routine|high chair|school lunch|car seat|baby monitor",
          "screen-time rules|toddler tantrums|birthday parties|chores for children|picture books",
          "travelled twelve hours by train with twins|ended the bedtime battles|got through the first week of school",
          "our four-year-old wakes at five every day|dinner takes an hour|the school sends nine e-mails a week",
          "lower your voice instead of raising it|pack snacks, then pack more|let them be bored",
          "the Dozewell cot|Little Larch shoes|Pocketplay|the Tumblebee stroller|Moonmilk cups"),
    Topic("pets", "Cats, dogs and smaller friends", "rescue dog|litter box|aquarium|chew toy|cat tree",
          "senior cats|slow feeders|rabbits|pet insurances|recall games",
          "adopted a fifteen-year-old cat|trained a deaf dog with hand signs|moved across the country with three cats",
          "my cat drinks only from the tap|the puppy howls when I leave|our dog is afraid of the stairs",
          "reward the quiet moments|brush teeth twice a week|keep the first week boring",
          "Barkwell kibble|the Whiskerloft|Pawsmith leads|the Otterpool filter|Tailgrove vets"),
    Topic("music", "Listening, playing, collecting", "turntable|bass line|live album|practice routine|string quartet",
          "open tunings|record shops|synthesisers|cover versions|house concerts",
          "learned the cello at 41|recorded an album in a wardrobe|played my first open mic",
          "my tuner and my ears disagree|neighbours complain at seven|I cannot count past four",
          "record yourself once a week|practise slowly with a metronome|change strings before the concert",
          "Velvet Causeway|the Low Meadow Trio|Paper Harbour|Static Orchard|Queen of Gravel"),
    Topic("travel", "Trips, trains and tips", "night train|carry-on bag|hostel|city pass|travel insurance",
          "off-season trips|walking tours|rail passes|phrasebooks|island ferries",
          "crossed the continent without flying|spent a month in one small town|travelled with only a backpack",
          "my connection is only nine minutes|the hotel lost our booking|I always overpack",
          "eat where the menu has one page|book the slow train|leave one day without plans",
          "Port Ellery|the Silverline Express|Casa Marivel|Lake Ostrava Trail|the Old Harbour Hostel"),
    Topic("homelab", "Servers in cupboards", "mini PC|network switch|backup server|home dashboard|rack shelf",
          "used office PCs|reverse proxies|container hosts|10-gigabit links|solar-powered nodes",
          "replaced six subscriptions with one small server|cut idle power to nine watts|ran cable through a 1930s "
          "house",
          "my backups have never been restored|the fans are louder than the fridge|certificates expire on holidays",
          "test a restore every month|label both ends of every cable|write down what you changed",
          "the Cubby N5|Stackrow|Quietbay cases|the Patchwell switch|Driftsync"),
    Topic("languages", "Learning languages", "flashcard deck|grammar book|language exchange|dialect|children's book",
          "irregular verbs|subtitles|tandem partners|graded readers|tones",
          "passed the B2 exam after two years|held a meeting in my third language|read my first novel in Portuguese",
          "I understand everything and can say nothing|the cases never stick|everybody answers in English",
          "read aloud every day|learn phrases, not words|make mistakes on purpose",
          "Verbwell|the Polyglot Café|Lingua Lane|Tandemly|the Wordmill course"),
    Topic("nyc", "Life in the city", "corner bakery|subway line|studio apartment|street fair|rooftop",
          "ferry rides|community gardens|rent-stabilised flats|free museums|dollar slices",
          "walked the whole length of Broadway|found a flat without a broker|ate in all five boroughs in one day",
          "my upstairs neighbour practises tap dance|the express runs local all weekend|the radiator cannot be "
          "turned off",
          "stand clear of the doors and of brokers|take the ferry at sunset|check the closing time twice",
          "Corbin's Deli|the Tenth Street Market|Halyard Hall|Marlow & Finch|the Juniper Theatre"),
    Topic("coffee", "Beans, brewing, cups", "hand grinder|pour-over kettle|espresso machine|moka pot|coffee scale",
          "light roasts|naturally processed beans|flat whites|cold brews|paper filters",
          "roasted beans in a popcorn machine|restored a lever machine|gave up sugar in coffee",
          "my espresso runs in eight seconds|the last sip is always bitter|the grinder clumps in winter",
          "weigh the water too|grind right before brewing|clean the basket every day",
          "the Ferrow grinder|Dawnchorus roasters|the Aeris kettle|Copperhill beans|Noonbird"),
    Topic("history", "The past, discussed", "medieval charter|trade route|family archive|old map|shipwreck",
          "forgotten canals|oral histories|Roman roads|coin hoards|census records",
          "traced my family back to 1640|transcribed a ship's log|walked an old salt road",
          "sources contradict each other|the archive is open two hours a week|every film gets the armour wrong",
          "ask who paid for the chronicle|look at the margins|visit the small museum first",
          "the Ashgrove Charter|Castle Merrow|the Tern Harbour wreck|the Vellum Society|Gallowmere"),
    Topic("productivity", "Getting things done, or not", "to-do list|paper planner|focus timer|inbox|weekly review",
          "morning routines|standing meetings|note-taking apps|deep-work blocks|bullet journals",
          "reached an empty inbox and kept it|worked four days a week for a year|deleted every productivity app",
          "I plan more than I do|every tool wants to be my second brain|meetings eat my mornings",
          "do the smallest next step|write tomorrow's list tonight|say no in one sentence",
          "Tickwell|the Blankpage planner|Focusfern|Slatebook|the Quarterglass timer"),
)  # fmt: skip

TITLES = (
    "What is the best {thing} you have ever owned?",
    "Is a good {thing} still worth the money in 2026?",
    "Unpopular opinion: {things} are overrated",
    "In defence of {things}",
    "I finally {did}. Here is what I learned",
    "[Guide] How I {did}",
    "Help: {problem}",
    "{problem_up}. What am I doing wrong?",
    "PSA: {tip}",
    "Two months with {brand}: an honest review",
    "Anyone else disappointed by {brand}?",
    "{brand} is better than people say",
    "Beginner question about {things}",
    "{brand} or {brand2}?",
    "Where do you buy {things} these days?",
    "My first {thing} was a mistake. Recommendations?",
    "A love letter to {brand}",
    "The three mistakes I made with {things}",
    "Which {thing} would you recommend under ${price}?",
    "After {years} years: {tip}",
)
LINK_TITLES = (
    "{brand} recalls its newest {thing}",
    "Why {things} are suddenly everywhere",
    "Study: people who like {things} are happier",
    "The quiet return of {things}",
    "{brand}: the full story behind the name",
    "A beginner's map of {things}",
    "Local group {did_news} and shares the plans",
    "How {brand} won over the critics",
)
BODIES = (
    "I have been reading here for about {years} years and this is my first post.",
    "Some background: I {did} last spring, so I am not a complete beginner.",
    "My budget is around ${price} and I would rather buy once.",
    "I tried {brand} first. It was fine for {years} weeks, then the trouble began.",
    "The short version: {problem}.",
    "A friend told me to {tip}. It helped a little, but not enough.",
    "What surprised me most was how much {things} matter.",
    "If I could give only one piece of advice, it would be this: {tip}.",
    "I compared {brand} with a no-name {thing} and could hardly tell the difference.",
    "The whole thing took me {years} evenings and cost less than ${price}.",
    "I know that {things} come up here every week, so thank you for your patience.",
    "Happy to answer questions, and to be told that I am wrong.",
    "What would you do in my place?",
    "Pictures when I am home.",
    "Edit: thank you all, I did not expect so many answers.",
)
COMMENTS = (
    "This. Also, {tip}.",
    "I had the same: {problem}. It went away after {years} weeks, no idea why.",
    "Hard disagree. {brand} has been solid for me for {years} years.",
    "Thank you for writing this up, saved.",
    "Have you looked at {brand}? It costs about ${price} and does everything you describe.",
    "I {did} a while ago and my experience was very different.",
    "Came here to say {brand}. Leaving satisfied.",
    "Please {tip}. Future you will be grateful.",
    "What kind of {thing} do you use? That changes the answer a lot.",
    "As somebody who works with {things} for a living: this is mostly right, apart from the price.",
    "Not sure why this is being voted down, it is a fair question.",
    "The trick nobody mentions: {tip}.",
    "My partner bought me a {thing} last year and I have not looked back.",
    "{things_up} are a matter of taste, but {brand} is the safe choice.",
    "I stopped reading at {brand}. Sorry.",
    "Nice work! How long did it take in the end?",
    "Counterpoint: {problem}, and no {thing} is going to change that.",
    "Is there a version of this for people with less than ${price} to spend?",
    "Upvoted for the effort alone.",
    "We talked about this last month as well, and the answer was the same: {tip}.",
    "Could you share which {thing} that is?",
    "Mine arrived yesterday. First impression: better than {brand}.",
    "Honestly, just {tip} and see what happens.",
    "Following, because {problem} here too.",
)
BIOS = (
    "Here for the {things}, staying for the arguments.",
    "Amateur of {things}. Opinions are my own and often wrong.",
    "I once {did}. Ask me about it.",
    "Mostly harmless. Owner of one {thing} too many.",
    "{brand} enthusiast since forever.",
    "",
    "",
)
HANDLE_FIRST = listed(
    "Quiet Copper Maple Velvet Rusty Lunar Salty Amber Hollow Brisk Paper Tidal Dusty Cobalt Mellow Frosty Gentle "
    "Wandering Sleepy Crooked Golden Electric Misty Nimble Plain Rainy Silver Tall Urban Woolly"
)
HANDLE_LAST = listed(
    "Harbor Badger Lantern Comet Teapot Walnut Otter Compass Fiddle Kettle Heron Pebble Sparrow Anvil Thimble Canoe "
    "Beacon Magpie Ferry Turnip Marmot Pylon Sonata Cactus Willow Gecko Ledger Drummer Orchard Biscuit"
)
